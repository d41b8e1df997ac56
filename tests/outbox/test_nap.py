"""When the relay relies on being notified."""

from datetime import timedelta
from uuid import uuid4

import pytest

from consumer_idem.outbox.horizon import Writers
from consumer_idem.outbox.lease import Lease
from consumer_idem.outbox.nap import Look, Nap
from consumer_idem.postgres.asyncpg import AsyncpgDatabase

NOTHING = Look(records=0, began=0.0, ended=0.0, complete=True)


def _writers(*names: str) -> Writers:
    return Writers(1, 7, frozenset(names))


async def _note(nap: Nap, look: Look) -> None:
    await nap.note(look, sending=False, can_hear=True)


@pytest.fixture
def awake(database: AsyncpgDatabase) -> Nap:
    """The nap of a relay that has just begun."""
    return Nap(Lease(database, "idem", uuid4(), timedelta(minutes=1)))


@pytest.fixture
async def asleep(awake: Nap) -> Nap:
    """The nap of a relay that sleeps."""
    await _note(awake, NOTHING)
    awake.observe(_writers())
    await _note(awake, NOTHING)
    assert awake.sound
    return awake


async def test_it_sleeps_once_a_read_has_seen_what_was_being_added_when_it_began_to_doze(awake: Nap) -> None:
    await _note(awake, NOTHING)
    awake.observe(_writers("a", "b"))
    awake.observe(_writers("b", "c"))
    await _note(awake, NOTHING)
    assert not awake.sound, "b may have looked before"
    awake.observe(_writers("c"))
    await _note(awake, NOTHING._replace(records=2000, complete=False))
    assert not awake.sound, "there was more than it read"
    await _note(awake, NOTHING._replace(records=3))

    assert awake.sound


@pytest.mark.parametrize("records", [1, 50])
async def test_it_goes_on_sleeping_while_reads_leave_it_breaks(asleep: Nap, records: int) -> None:
    for number in range(500):
        await _note(asleep, Look(records=records, began=number / 50, ended=number / 50 + 0.005, complete=True))

    assert asleep.sound


async def test_it_goes_on_sleeping_at_two_hundred_single_records_a_second(asleep: Nap) -> None:
    for number in range(1000):
        await _note(asleep, Look(records=1, began=number / 200, ended=number / 200 + 0.002, complete=True))

    assert asleep.sound


@pytest.mark.parametrize(("records", "seconds"), [(1, 1.1), (20, 0.15)])
async def test_under_load_it_is_not_notified(asleep: Nap, records: int, seconds: float) -> None:
    now = 100.0
    while now < 100.0 + seconds and asleep.sound:
        await _note(asleep, Look(records=records, began=now, ended=now + 0.002, complete=True))
        now += 0.0025

    assert not asleep.sound
    assert now > 100.09

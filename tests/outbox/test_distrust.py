"""What a relay may not believe any more: its lease after a long wait, and its memory after the database has failed it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from consumer_idem.errors import DatabaseFailure
from consumer_idem.outbox import horizon
from consumer_idem.outbox.backlog import Backlog, Page, Wanted
from consumer_idem.outbox.entry import Entry
from consumer_idem.outbox.flights import Flights
from consumer_idem.outbox.lease import Lease
from consumer_idem.outbox.relay import Relay
from consumer_idem.outbox.window import Limits
from consumer_idem.ports import Delivery
from consumer_idem.testing.waiting import eventually
from tests.conftest import MakeTopic
from tests.outbox.scene import QUICK, Scene, record

PATIENT = replace(QUICK, lease=timedelta(minutes=5), full_look=timedelta(hours=1))


class Failing:
    """The database fails the next heartbeat."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failed = asyncio.Event()
        self._armed = False
        beat = Lease.beat

        async def fail_once(lease: Lease, *, ping: bool) -> None:
            if self._armed:
                self._armed = False
                self.failed.set()
                raise DatabaseFailure("gone")
            await beat(lease, ping=ping)

        monkeypatch.setattr(Lease, "beat", fail_once)

    async def now(self, relay: Relay) -> None:
        """Let it be due, and wait until it has failed."""
        self._armed = True
        relay._lease.hurry()
        relay.loop.wake()
        await self.failed.wait()


async def test_c5_a_relay_whose_read_outlasts_its_lease_sends_nothing_of_it(
    scene: Scene, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, read, has_read, go_on, slow = topic(), Backlog.read, asyncio.Event(), asyncio.Event(), set[Backlog]()

    async def wait(backlog: Backlog, wanted: Wanted) -> Page:
        page = await read(backlog, wanted)
        if page.entries and not slow:
            slow.add(backlog)
            has_read.set()
            await go_on.wait()
        return page

    monkeypatch.setattr(Backlog, "read", wait)
    async with scene.relay(settings=replace(QUICK, lease=timedelta(seconds=1))):
        await scene.add(*(record(name, number) for number in range(10)))
        await has_read.wait()
        async with scene.relay():
            await scene.drained()
            go_on.set()
            await eventually(lambda: scene.connection.fetchval("SELECT count(DISTINCT owner) = 2 FROM idem.outbox_shard"))

    assert list(range(10)) == await scene.values(name)


async def test_after_a_failure_of_the_database_nothing_is_sent_from_memory(
    scene: Scene, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came back older than it was: what stood behind the first record is not there any more."""
    name, publish, under_way, go_on = topic(), Flights._publish, asyncio.Event(), asyncio.Event()

    async def wait(flights: Flights, entries: Sequence[Entry]) -> Sequence[Delivery]:
        under_way.set()
        await go_on.wait()
        return await publish(flights, entries)

    monkeypatch.setattr(Flights, "_publish", wait)
    failing = Failing(monkeypatch)
    async with scene.relay(settings=replace(PATIENT, limits=Limits(batch=1))) as relay:
        await scene.add(*(record(name, number) for number in range(3)))
        await under_way.wait()
        await eventually(lambda: len(relay._window.known()) == 3)
        await scene.connection.execute("DELETE FROM idem.outbox WHERE value <> '0'")
        await failing.now(relay)
        go_on.set()
        await scene.drained()
        await scene.add(record(name, 3))
        await scene.drained()

    assert await scene.values(name) == [0, 3]


async def test_after_a_failure_of_the_database_it_registers_and_reads_from_the_start(
    scene: Scene, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came back older than it was: the relay is not known to it, and an id comes that was passed for good."""
    monkeypatch.setattr(horizon, "_STEP", 1)
    name, failing = topic(), Failing(monkeypatch)
    async with scene.relay(settings=PATIENT) as relay:
        for number in range(3):
            await scene.add(record(name, number))
            await scene.drained()
        await eventually(lambda: relay._reader._floor.value >= 2)
        await scene.connection.execute("DELETE FROM idem.outbox_relay")
        await scene.connection.execute("SELECT setval(pg_get_serial_sequence('idem.outbox', 'id'), 1, false)")
        await scene.add(record(name, 3))
        await failing.now(relay)
        await scene.drained()

    assert await scene.values(name) == [0, 1, 2, 3]

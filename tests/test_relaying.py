"""What goes on beside a relay: its duties begin, tell what is alarming, and end with it."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from consumer_idem import relaying
from consumer_idem.errors import DatabaseFailure
from consumer_idem.outbox.limits import RecordLimits
from consumer_idem.outbox.table import Outbox
from consumer_idem.ports import Delivery
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.relaying import Relaying
from consumer_idem.testing.waiting import eventually
from tests.outbox.scene import record


class Idle:
    """A publisher that has nothing to do, and never says how large a record may be."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.closed = False

    async def start(self) -> None: ...

    async def publish(self, records: Sequence[Any]) -> Sequence[Delivery]:
        raise AssertionError(records)

    async def record_limit(self, topic: str) -> int | None:
        self.asked.set()
        await asyncio.Event().wait()
        return None

    async def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def relays(dsn: str) -> AsyncIterator[tuple[Relaying, Idle, RecordLimits]]:
    database, publisher, limits = AsyncpgDatabase(dsn, max_size=4), Idle(), RecordLimits()
    await database.open()
    made = Relaying(database, publisher, schema="idem", owner=uuid4(), listener=None, limits=limits)
    await made.start()
    try:
        yield made, publisher, limits
    finally:
        await made.stop()
        await database.close()


async def test_c22_what_is_alarming_about_the_outbox_is_logged_for_as_long_as_it_lasts(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relaying, "_FIRST_LOOK", timedelta(milliseconds=100))
    monkeypatch.setattr(relaying, "_LOOK_AT_HEALTH", timedelta(milliseconds=100))
    connection = await asyncpg.connect(dsn)
    async with connection.transaction():
        await Outbox().add(connection, [record("t", 1)])
    await connection.execute("UPDATE idem.outbox SET state = 'x', error = 'too large'")

    def alarms() -> list[str]:
        return [each.alarm for each in caplog.records if each.message == "outbox alarm" and "parked" in each.alarm]  # type: ignore[attr-defined]

    async with relays(dsn):
        await eventually(lambda: len(alarms()) > 2)
        await connection.execute("DELETE FROM idem.outbox")
    seen = len(alarms())
    await connection.close()

    assert alarms()[0].startswith("1 records are parked")
    assert len(alarms()) == seen


async def test_of_several_processes_with_a_relay_one_tells_what_is_alarming(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    connection = await asyncpg.connect(dsn)
    async with relays(dsn) as (first, _, _), relays(dsn) as (second, _, _):
        await eventually(lambda: connection.fetchval("SELECT count(DISTINCT owner) = 2 AND count(owner) = 64 FROM idem.outbox_shard"))
        await eventually(lambda: first._relay.first != second._relay.first)
        caplog.clear()
        async with connection.transaction():
            await Outbox().add(connection, [record("t", 1)])
            await connection.execute("UPDATE idem.outbox SET state = 'x', error = 'too large'")
        for each in (first, second):
            await each._alarms.run_once()
    await connection.close()

    assert len([each for each in caplog.records if each.message == "outbox alarm"]) == 1


async def test_a_relay_that_has_no_lease_yet_is_no_alarm(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # However long the first heartbeat is kept waiting here.
    monkeypatch.setattr(relaying, "_FIRST_LOOK", timedelta(minutes=5))
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("LOCK TABLE idem.outbox_relay IN SHARE MODE")
    async with relays(dsn):
        waiting = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'idem.outbox_relay'::regclass"
        await eventually(lambda: connection.fetchval(waiting))
        # A look that began with the relay would be done by the end of these.
        for _ in range(200):
            await connection.fetchval("SELECT count(*) FROM pg_stat_activity")
        await transaction.rollback()
        await eventually(lambda: connection.fetchval("SELECT count(*) = 1 FROM idem.outbox_relay"))
    await connection.close()

    assert not [each for each in caplog.records if each.message == "outbox alarm"]


async def test_a_database_that_is_down_is_no_alarm_of_the_outbox(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relaying, "_FIRST_LOOK", timedelta(0))
    looked, begin = asyncio.Event(), AsyncpgDatabase.begin

    async def fails(self: AsyncpgDatabase, script: str) -> Any:
        if "enable_seqscan" in script:
            looked.set()
            raise DatabaseFailure
        return await begin(self, script)

    monkeypatch.setattr(AsyncpgDatabase, "begin", fails)
    async with relays(dsn):
        await asyncio.wait_for(looked.wait(), 10)

    assert not [each for each in caplog.records if "outbox health" in each.message]


async def test_everything_ends_with_it_also_a_question_that_gets_no_answer(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "_DUTY_ENDS_WITHIN", 0.2)
    before = asyncio.all_tasks()
    async with relays(dsn) as (_, publisher, limits):
        limits.check(record("t", 1))
        await asyncio.wait_for(publisher.asked.wait(), 10)
        began = time.monotonic()
    took = time.monotonic() - began

    await eventually(lambda: asyncio.all_tasks() <= before)
    assert publisher.closed
    assert took < 5

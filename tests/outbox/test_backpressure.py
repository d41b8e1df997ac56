import asyncio
from datetime import timedelta

import asyncpg
import pytest

from consumer_idem.outbox.backpressure import Backpressure, BackpressureLimits
from consumer_idem.outbox.table import Outbox
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from tests.outbox.scene import record

AT_ONCE = timedelta(0)


async def _add(connection: asyncpg.Connection, count: int, **more: str) -> None:
    async with connection.transaction():
        await Outbox().add(
            connection, [record(more.get("topic", "t"), number, key=more.get("key", f"k{number}")) for number in range(count)]
        )


async def test_it_pauses_at_the_depth_and_resumes_below_half(
    connection: asyncpg.Connection, database: AsyncpgDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    pressure = Backpressure(database, limits=BackpressureLimits(depth=100), interval=AT_ONCE)
    await _add(connection, 99)
    assert not await pressure.paused()
    await _add(connection, 1)
    assert await pressure.paused()
    await connection.execute("DELETE FROM idem.outbox WHERE id IN (SELECT id FROM idem.outbox ORDER BY id LIMIT 50)")
    assert await pressure.paused()
    await connection.execute("DELETE FROM idem.outbox WHERE id IN (SELECT id FROM idem.outbox ORDER BY id LIMIT 1)")

    assert not await pressure.paused()
    told = [each.message for each in caplog.records if each.name == "consumer_idem.outbox.backpressure"]
    assert told == ["consumption pauses: the outbox is too deep or too old", "consumption resumes"]


async def test_it_pauses_when_the_oldest_record_is_too_old(connection: asyncpg.Connection, database: AsyncpgDatabase) -> None:
    pressure = Backpressure(database, limits=BackpressureLimits(age=timedelta(minutes=5)), interval=AT_ONCE)
    await _add(connection, 1)
    assert not await pressure.paused()
    await connection.execute("UPDATE idem.outbox SET created_at = now() - interval '6 minutes'")

    assert await pressure.paused()


async def test_what_no_relay_could_publish_does_not_count(connection: asyncpg.Connection, database: AsyncpgDatabase) -> None:
    pressure = Backpressure(database, limits=BackpressureLimits(depth=10), interval=AT_ONCE)
    await _add(connection, 20, key="one")
    await connection.execute("UPDATE idem.outbox SET state = 'x' WHERE id = (SELECT min(id) FROM idem.outbox)")
    await _add(connection, 20, topic="held")
    await connection.execute("INSERT INTO idem.outbox_relay VALUES (gen_random_uuid(), now() + interval '1 hour')")
    await connection.execute("INSERT INTO idem.outbox_hold (topic, owner, error) SELECT 'held', owner, 'missing' FROM idem.outbox_relay")

    assert not await pressure.paused()


async def test_what_no_relay_could_publish_does_not_keep_it_paused(connection: asyncpg.Connection, database: AsyncpgDatabase) -> None:
    pressure = Backpressure(database, limits=BackpressureLimits(depth=10), interval=AT_ONCE)
    await _add(connection, 20, key="one")
    assert await pressure.paused()
    await connection.execute("UPDATE idem.outbox SET state = 'x' WHERE id = (SELECT min(id) FROM idem.outbox)")

    assert not await pressure.paused()


async def test_records_are_counted_only_where_the_count_matters(connection: asyncpg.Connection, database: AsyncpgDatabase) -> None:
    pressure = Backpressure(database, limits=BackpressureLimits(depth=1000), interval=AT_ONCE)
    await _add(connection, 90)
    async with connection.transaction():
        # Counting needs this table and would wait for it.
        await connection.execute("LOCK idem.outbox_hold")

        assert not await asyncio.wait_for(pressure.paused(), 5)


async def test_it_asks_the_database_once_per_interval(connection: asyncpg.Connection, database: AsyncpgDatabase) -> None:
    pressure = Backpressure(database, limits=BackpressureLimits(depth=10), interval=timedelta(hours=1))
    assert not await pressure.paused()
    await _add(connection, 20)

    assert not await pressure.paused()

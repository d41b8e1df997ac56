import asyncio
import json
from datetime import UTC, datetime

import asyncpg
import pytest

from consumer_idem.errors import OutsideTransaction
from consumer_idem.outbox.record import PendingRecord, uuid7
from consumer_idem.outbox.table import Outbox
from consumer_idem.ports import Connection
from tests.outbox.scene import record


async def _rows(connection: asyncpg.Connection) -> list[asyncpg.Record]:
    return list(await connection.fetch("SELECT *, headers::text AS header_text FROM idem.outbox ORDER BY id"))


async def test_records_get_ascending_ids_in_the_order_given(connection: asyncpg.Connection) -> None:
    async with connection.transaction():
        await Outbox().add(connection, [record(f"t{number % 3}", number, key=f"k{number % 7}") for number in range(1000)])

    assert [b"%d" % number for number in range(1000)] == [row["value"] for row in await _rows(connection)]


async def test_every_field_is_kept(connection: asyncpg.Connection) -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
    headers = [("a", b"1"), ("a", None), ("raw", b"\xff\x00"), ("text", "é\x00".encode())]
    full = PendingRecord(topic="t", key=b"\x00k", value=b"\xff", headers=headers, type="applied", source="shop", message_time=time)
    tombstone = PendingRecord(topic="u", source="other")
    async with connection.transaction():
        await Outbox().add(connection, [full, tombstone])
    first, second = await _rows(connection)

    assert (full.message_id, "t", b"\x00k", b"\xff", "applied", "shop", time) == tuple(
        first[name] for name in ("message_id", "topic", "key", "value", "type", "source", "message_time")
    )
    assert len(json.loads(first["header_text"])) == 4
    assert tuple(second[name] for name in ("topic", "key", "value", "headers", "type", "source", "message_time")) == (
        "u",
        None,
        None,
        None,
        None,
        "other",
        None,
    )


async def test_records_that_differ_in_one_column_only_are_kept_apart(connection: asyncpg.Connection) -> None:
    mixed = [PendingRecord(topic=topic, source=source, type=type) for topic in "tu" for source in "ab" for type in ("x", None)]
    async with connection.transaction():
        await Outbox().add(connection, mixed)

    assert [(each.topic, each.source, each.type) for each in mixed] == [
        (row["topic"], row["source"], row["type"]) for row in await _rows(connection)
    ]


async def test_a_rolled_back_transaction_leaves_nothing(connection: asyncpg.Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await Outbox().add(connection, record("t", 1))
    await transaction.rollback()

    assert await _rows(connection) == []


async def test_outside_a_transaction_it_is_refused(connection: asyncpg.Connection) -> None:
    with pytest.raises(OutsideTransaction):
        await Outbox().add(connection, record("t", 1))


async def test_it_takes_the_librarys_own_connection(transaction: Connection) -> None:
    await Outbox().add(transaction, record("t", 1))

    assert [dict(row) for row in await transaction.fetch("SELECT value FROM idem.outbox")] == [{"value": b"1"}]


async def test_an_id_that_the_caller_keeps_is_used(connection: asyncpg.Connection) -> None:
    mine = uuid7()
    async with connection.transaction():
        await Outbox().add(connection, record("t", 1, message_id=mine))

    assert [mine] == [row["message_id"] for row in await _rows(connection)]


async def test_c3_in_order_makes_transactions_of_one_key_take_turns(dsn: str, connection: asyncpg.Connection) -> None:
    other = await asyncpg.connect(dsn)
    outbox = Outbox(in_order=True)
    first = connection.transaction()
    await first.start()
    await outbox.add(connection, [record("t", 1), record("t", 10, key="free"), record("t", 11, key=None)])

    async def second() -> None:
        async with other.transaction():
            await outbox.add(other, [record("t", 3, key=None), record("t", 2)])

    waiting = asyncio.create_task(second())
    while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
        assert not waiting.done()
    await connection.execute("SELECT nextval(pg_get_serial_sequence('idem.outbox', 'id'))")
    await first.commit()
    await waiting
    rows = await _rows(connection)
    await other.close()

    assert [row["value"] for row in rows] == [b"1", b"10", b"11", b"3", b"2"]
    assert rows[3]["id"] > rows[2]["id"] + 1, "the second transaction took its ids before its turn"

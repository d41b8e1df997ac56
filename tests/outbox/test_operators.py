import asyncpg
import pytest

from consumer_idem.outbox.operators import OutboxDesk, Status
from consumer_idem.outbox.table import Outbox
from consumer_idem.ports import Connection
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.transaction.short import short
from tests.outbox.scene import record

desk = OutboxDesk()


@pytest.fixture
async def ids(connection: asyncpg.Connection) -> list[int]:
    """Records 1 to 6: one parked, one behind it, one of another key, one of a held topic, one of a run, one without a key."""
    records = [record("t", 1), record("t", 2, headers=[("h", None)]), record("t", 3, key="other"), record("u", 4), record("t", 5, key="r")]
    async with connection.transaction():
        await Outbox().add(connection, [*records, record("t", 6, key=None)])
    rows = await connection.fetch("SELECT id FROM idem.outbox ORDER BY id")
    ids = [row["id"] for row in rows]
    await connection.execute("UPDATE idem.outbox SET state = 'x', error = 'too large' WHERE id = $1", ids[0])
    await connection.execute("UPDATE idem.outbox SET state = 'h', run = 7 WHERE id = $1", ids[4])
    await connection.execute("INSERT INTO idem.outbox_relay VALUES (gen_random_uuid(), now() + interval '1 hour')")
    await connection.execute("INSERT INTO idem.outbox_hold (topic, owner, error) SELECT 'u', owner, 'missing' FROM idem.outbox_relay")
    return ids


async def test_list_says_why_each_record_is_still_there(ids: list[int], transaction: Connection) -> None:
    listed = await desk.list(transaction)

    assert list(zip(ids, [Status.PARKED, Status.BLOCKED, Status.PENDING, Status.TOPIC_HELD, Status.HELD, Status.PENDING], strict=True)) == [
        (each.id, each.status) for each in listed
    ]
    assert [each.error for each in listed] == ["too large", None, None, "missing", None, None]


async def test_list_filters_and_pages(ids: list[int], transaction: Connection) -> None:
    assert [ids[2], ids[5]] == [each.id for each in await desk.list(transaction, status=Status.PENDING)]
    assert [ids[3]] == [each.id for each in await desk.list(transaction, topic="u")]
    assert ids[2:4] == [each.id for each in await desk.list(transaction, above=ids[1], limit=2)]


async def test_show_adds_value_and_headers(ids: list[int], transaction: Connection) -> None:
    shown = await desk.show(transaction, ids[1])

    assert shown is not None
    assert (shown.value, shown.headers, shown.size) == (b"2", (("h", None),), 1)
    assert await desk.show(transaction, ids[-1] + 1) is None


async def test_retry_frees_the_record_and_what_it_blocked_and_is_audited(ids: list[int], database: AsyncpgDatabase) -> None:
    async with short(database, "idem") as connection:
        assert [ids[0]] == await desk.retry(connection, ids, operator="ann", reason="limit raised")
    async with short(database, "idem") as connection:
        assert [each.status for each in (await desk.list(connection))[:2]] == [Status.PENDING] * 2
        (audit,) = await connection.fetch("SELECT * FROM idem.outbox_audit")
        (shards,) = await connection.fetch("SELECT sum(change) AS change FROM idem.outbox_shard")

    assert ("retry", "ann", "limit raised", ids[0], "too large") == tuple(
        audit[name] for name in ("action", "operator", "reason", "record", "error")
    )
    assert shards["change"] == 1


async def test_drop_deletes_what_is_parked_or_pending_but_not_what_a_run_holds(ids: list[int], transaction: Connection) -> None:
    dropped = await desk.drop(transaction, [ids[0], ids[2], ids[4]], operator="ann", reason="wrong topic")

    assert [ids[0], ids[2]] == dropped
    assert [ids[1], ids[3], ids[4], ids[5]] == [each.id for each in await desk.list(transaction)]
    assert len(await transaction.fetch("SELECT * FROM idem.outbox_audit WHERE action = 'drop'")) == 2

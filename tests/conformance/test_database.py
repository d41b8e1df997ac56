"""What every adapter of Database must do. The first test is the one that matters most."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from consumer_idem.errors import CommitUnknown, DatabaseFailure
from consumer_idem.inbox.table import Claims, Content, Inbox
from consumer_idem.ports import Connection, Database, Fault
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.testing.lost import LostCommit
from consumer_idem.transaction.begin import Begin
from tests.proxied import through

ADAPTERS: dict[str, Callable[[str], Database]] = {
    "asyncpg": lambda dsn: AsyncpgDatabase(dsn),
    "asyncpg without prepared statements": lambda dsn: AsyncpgDatabase(dsn, statement_cache_size=0),
}


@pytest.fixture(params=ADAPTERS)
def make(request: pytest.FixtureRequest) -> Callable[[str], Database]:
    return ADAPTERS[request.param]


@pytest.fixture
async def database(make: Callable[[str], Database], dsn: str) -> AsyncIterator[Database]:
    made = make(dsn)
    await made.open()
    yield made
    await made.close()


async def begin(database: Database, **options: Any) -> Connection:
    return await Begin(schema="idem", **options).attempt(database, uuid4())


async def count(dsn: str, table: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(f"SELECT count(*) FROM {table}")
    finally:
        await connection.close()


def claim() -> Claims:
    content = Content([uuid4()], [1], [1], [1], [0], [0], ["4711"], [None], [b"f" * 32], [1])
    return Claims(content, [None], [b"dddd"], [None])


async def test_claim_roll_back_nothing_left(database: Database, dsn: str):
    connection = await begin(database)
    assert await Inbox("idem").claim(connection, uuid4(), claim()) == {}
    await connection.rollback()

    assert await count(dsn, "idem.inbox") == 0


async def test_a_claim_that_is_not_sealed_cannot_be_committed(database: Database, dsn: str):
    connection = await begin(database)
    await Inbox("idem").claim(connection, uuid4(), claim())
    with pytest.raises(DatabaseFailure, match="not sealed"):
        await connection.commit()

    assert await count(dsn, "idem.inbox") == 0


async def test_what_is_committed_is_there(database: Database, dsn: str):
    connection = await begin(database)
    await connection.execute("CREATE TABLE t (i int)")
    await connection.executemany("INSERT INTO t VALUES ($1)", [(1,), (2,), (3,)])
    rows = await connection.fetch("SELECT i FROM t WHERE i > $1 ORDER BY i", 1)
    await connection.commit()

    assert [row["i"] for row in rows] == [2, 3]
    assert await count(dsn, "t") == 3


async def test_b8_a_commit_that_is_answered_with_rollback_is_a_failure(database: Database, dsn: str):
    connection = await begin(database)
    await connection.execute("CREATE TABLE t (i int)")
    with pytest.raises(asyncpg.PostgresError):
        await connection.execute("SELECT 1 / 0")
    assert connection.fault is Fault.STATEMENT
    assert connection.cause == "DivisionByZeroError: division by zero"
    with pytest.raises(DatabaseFailure) as failure:
        await connection.commit()

    assert failure.value.sqlstate == "25P02"
    with pytest.raises(asyncpg.UndefinedTableError):
        await count(dsn, "t")


async def test_b19_a_connection_comes_back_without_the_last_transaction(database: Database):
    connection = await begin(database)
    await connection.execute("CREATE TABLE t (i int)")
    await connection.rollback()
    again = await begin(database)
    rows = await again.fetch("SELECT to_regclass('t') AS t, current_setting('idem.sealed', true) AS sealed")
    await again.rollback()

    assert rows[0]["t"] is None
    assert rows[0]["sealed"] in (None, "")


async def test_a_cancelled_statement_leaves_a_connection_that_can_be_used(database: Database):
    connection = await begin(database)
    sleeping = asyncio.create_task(connection.fetch("SELECT pg_sleep(30)"))
    await asyncio.sleep(0.1)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    await connection.rollback()
    again = await begin(database)

    assert (await again.fetch("SELECT 1 AS one"))[0]["one"] == 1
    await again.rollback()


@pytest.mark.parametrize(
    ("sqlstate", "fault"),
    [
        ("40001", Fault.INFRASTRUCTURE),
        ("40P01", Fault.INFRASTRUCTURE),
        ("55P03", Fault.INFRASTRUCTURE),
        ("25006", Fault.INFRASTRUCTURE),
        ("53100", Fault.INFRASTRUCTURE),
        ("58030", Fault.INFRASTRUCTURE),
        ("23505", Fault.STATEMENT),
        ("57014", Fault.STATEMENT),
        ("22012", Fault.STATEMENT),
    ],
)
async def test_b15_errors_are_told_apart_by_their_code(database: Database, sqlstate: str, fault: Fault):
    connection = await begin(database)
    with pytest.raises(asyncpg.PostgresError):
        await connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'planned' USING ERRCODE = '{sqlstate}'; END $$")
    assert connection.fault is fault
    with pytest.raises(asyncpg.PostgresError):
        await connection.execute("SELECT 1")

    assert connection.fault is (fault if fault is Fault.INFRASTRUCTURE else Fault.ABORTED)
    assert (connection.cause or "").endswith(": planned")
    await connection.rollback()


async def test_a_connection_that_the_server_ends_is_infrastructure(database: Database, dsn: str):
    connection = await begin(database)
    pid = (await connection.fetch("SELECT pg_backend_pid() AS pid"))[0]["pid"]
    other = await asyncpg.connect(dsn)
    await other.execute(f"SELECT pg_terminate_backend({pid})")
    await other.close()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)):
        await connection.execute("SELECT 1")

    assert connection.fault is Fault.INFRASTRUCTURE
    assert not connection.in_transaction()
    await connection.rollback()


async def test_b15_a_transaction_whose_worker_is_silent_is_ended_by_the_server(database: Database):
    connection = await begin(database, idle_timeout=timedelta(milliseconds=50))
    async with asyncio.timeout(10):
        while connection.in_transaction():
            await asyncio.sleep(0.01)

    assert connection.fault is Fault.INFRASTRUCTURE
    await connection.rollback()


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_b10_a_commit_without_an_answer_is_unknown(make: Callable[[str], Database], dsn: str, lost: str):
    trigger = LostCommit(lost)
    proxy, address = through(dsn, trigger)
    async with proxy:
        database = make(address)
        connection = await begin(database)
        await connection.execute("CREATE TABLE t (i int)")
        trigger.arm()
        with pytest.raises(CommitUnknown):
            await connection.commit()
        again = await begin(database)
        rows = await again.fetch("SELECT to_regclass('t') AS t")
        await again.rollback()
        await database.close()

    assert (rows[0]["t"] is not None) == (lost == "answer")


async def test_a_server_that_is_not_there_is_named_with_what_to_do(make: Callable[[str], Database]):
    database = make("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseFailure, match="--database"):
        await database.open()


async def test_a_wrong_password_or_database_is_named_with_what_to_do(make: Callable[[str], Database], dsn: str):
    from urllib.parse import urlsplit

    database = make(dsn.replace(urlsplit(dsn).path, "/no_such_database"))
    with pytest.raises(DatabaseFailure, match="no_such_database") as failure:
        await database.open()
    assert failure.value.sqlstate == "3D000"

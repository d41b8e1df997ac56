"""Prepared statements behind a proxy that pools transactions."""

from contextlib import suppress

import asyncpg
import pytest

from consumer_idem.errors import DatabaseFailure
from consumer_idem.ports import Fault
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.transaction.short import short
from tests.pooler import open_pooler


async def test_b18_a_prepared_statement_of_another_process_is_never_run(dsn: str, monkeypatch: pytest.MonkeyPatch):
    """asyncpg numbers its statements in each process from one on: the same name is another statement in another session."""
    async with open_pooler(dsn, sessions=2) as proxy:
        processes, answers = [], []
        for number in range(2):
            monkeypatch.setattr("asyncpg.connection._uid", 0)
            processes.append(AsyncpgDatabase(proxy.dsn, max_size=1))
            answers.append((number, await asked(processes[number], number)))
        # An odd number in each round: the two sessions take turns, and must not go to the same process each time.
        answers += [(number, await asked(processes[number], number)) for _ in range(6) for number in (0, 1, 1)]
        for process in processes:
            await process.close()

    assert [given for own, given in answers if given not in (own, None)] == []
    assert {own for own, given in answers if given is not None} == {0, 1}


async def test_b18_a_statement_that_a_proxy_lost_is_the_ways_fault_in_a_pool_of_the_users_too(dsn: str):
    faults = []
    async with open_pooler(dsn, sessions=3) as proxy, asyncpg.create_pool(proxy.dsn, min_size=1, max_size=1) as pool:
        database = AsyncpgDatabase(pool=pool)
        for _ in range(4):
            connection = await database.begin("BEGIN")
            with suppress(asyncpg.PostgresError):
                await connection.fetch("SELECT $1::int", 1)
            faults.append(connection.fault)
            await connection.rollback()

    assert set(faults) == {None, Fault.INFRASTRUCTURE}


async def asked(process: AsyncpgDatabase, number: int) -> object:
    """Return what the process gets for its own statement; None if the proxy has lost that."""
    with suppress(DatabaseFailure):
        async with short(process, "idem") as connection:
            return (await connection.fetch(f"SELECT {number} AS own"))[0]["own"]
    return None

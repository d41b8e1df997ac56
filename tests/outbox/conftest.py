"""The scene of the outbox tests."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from consumer_idem.ports import Connection
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.transaction.short import short
from tests.outbox.scene import Scene


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain asyncpg connection."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[AsyncpgDatabase]:
    """The library's Database."""
    database = AsyncpgDatabase(dsn, max_size=4)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
async def transaction(database: AsyncpgDatabase) -> AsyncIterator[Connection]:
    """A transaction of the library's."""
    async with short(database, "idem") as connection:
        yield connection


@pytest.fixture
async def scene(request: pytest.FixtureRequest, dsn: str, kafka: str, connection: asyncpg.Connection) -> Scene:
    """A database, a broker and no relay yet; its parameter is the relay's client."""
    return Scene(dsn, kafka, connection, getattr(request, "param", "confluent"))

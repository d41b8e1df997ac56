"""One PostgreSQL and one Kafka for the whole run, a fresh database for every test, and servers of a test's own to kill.

`dsn`        a fresh database with the library's tables          `topic(…)`   make a topic, return its name
`empty_dsn`  a fresh database without them                       `services`   servers that this test may kill
`kafka`      the bootstrap address of the run's broker           `broker`     that broker itself

A test that uses `kafka` needs Apache Kafka itself, unless it carries the mark `any_kafka`. Where there is only the small
broker such a test is skipped, or fails with CONSUMER_IDEM_REQUIRE_KAFKA=1.

Hypothesis tries the same examples in every run; `--hypothesis-profile search` looks for others, and for many more.
"""

import os
import time
import uuid
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Protocol

import asyncpg
import hypothesis
import pytest

from consumer_idem import sql
from consumer_idem.testing.services.choose import ExternalKafka, Kafka, Postgres, open_kafka, open_postgres
from consumer_idem.testing.services.containers import KafkaContainer, docker_answers
from consumer_idem.testing.services.kafka import KafkaBroker
from consumer_idem.testing.services.kafka_jars import can_resolve
from consumer_idem.testing.services.postgres import PostgresServer
from consumer_idem.testing.services.process import ServiceFailed
from consumer_idem.testing.services.small_broker import SmallBroker

# How long an example takes says something about the machine, and which are tried must not hang on chance: two runs of the same
# code end alike.
_AT_ANY_PACE: Any = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("suite", derandomize=True, **_AT_ANY_PACE)
hypothesis.settings.register_profile("search", max_examples=3000, **_AT_ANY_PACE)
hypothesis.settings.load_profile("suite")


class Run:
    """What this run has started, each on first use, and the tests that it could not run."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._postgres: Postgres | None = None
        self._kafka: Kafka | None = None
        self.without_kafka: list[str] = []

    def postgres(self) -> Postgres:
        if self._postgres is None:
            self._postgres = open_postgres()
            self._undo.callback(self._postgres.close)
        return self._postgres

    def kafka(self) -> Kafka:
        if self._kafka is None:
            self._kafka = open_kafka()
            self._undo.callback(self._kafka.close)
        return self._kafka

    def close(self) -> None:
        self._undo.close()


RUN = pytest.StashKey[Run]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RUN] = Run()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[RUN].close()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the run's broker before the first test: no test's time-out is meant for Kafka's jars on their way from afar."""
    if not session.config.option.collectonly and any(map(uses_kafka, session.items)):
        # If there can be none, the tests that need it say so.
        with suppress(ServiceFailed):
            session.config.stash[RUN].kafka()


def uses_kafka(item: pytest.Item) -> bool:
    return "broker" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if uses_kafka(item) and item.get_closest_marker("any_kafka") is None and not item.config.stash[RUN].kafka().is_real:
        miss_kafka(item)


def miss_kafka(item: pytest.Item) -> None:
    """Skip the test for lack of Apache Kafka, by name; fail it where that is not allowed."""
    item.config.stash[RUN].without_kafka.append(item.nodeid)
    if os.environ.get("CONSUMER_IDEM_REQUIRE_KAFKA") == "1":
        pytest.fail("Apache Kafka is required and could not be started: install a JDK 17 and Maven.", pytrace=False)
    pytest.skip("needs Apache Kafka")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Generator[None, None, None]:
    yield
    missed = config.stash[RUN].without_kafka
    if missed:
        terminalreporter.section("without Apache Kafka")
        for nodeid in missed:
            terminalreporter.line(f"NOT RUN {nodeid}")
        terminalreporter.line(f"{len(missed)} tests need Apache Kafka and were not run: install a JDK 17 and Maven.")


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Postgres:
    """The run's PostgreSQL server."""
    return pytestconfig.stash[RUN].postgres()


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> Kafka:
    """The run's broker: a KafkaBroker, a KafkaContainer, an ExternalKafka or a SmallBroker. Other tests use it too."""
    return pytestconfig.stash[RUN].kafka()


@pytest.fixture(scope="session")
def kafka(broker: Kafka) -> str:
    """The bootstrap address of the run's broker."""
    return broker.bootstrap


@pytest.fixture(scope="session")
async def databases(postgres: Postgres) -> AsyncIterator[asyncpg.Connection]:
    """A connection that makes and drops databases."""
    connection = await asyncpg.connect(postgres.dsn())
    yield connection
    await connection.close()


@pytest.fixture(scope="session")
async def template(postgres: Postgres, databases: asyncpg.Connection) -> AsyncIterator[str]:
    """The name of a database with the library's tables, to be copied."""
    name = await _create(databases, "template1")
    connection = await asyncpg.connect(postgres.dsn(name))
    for script in sql.migrations("idem").values():
        await connection.execute(script)
    await connection.close()
    yield name
    await _drop(databases, name)


@pytest.fixture
async def dsn(postgres: Postgres, databases: asyncpg.Connection, template: str) -> AsyncIterator[str]:
    """The connection string of a fresh database with the library's tables."""
    name = await _create(databases, template)
    yield postgres.dsn(name)
    await _drop(databases, name)


@pytest.fixture
async def empty_dsn(postgres: Postgres, databases: asyncpg.Connection) -> AsyncIterator[str]:
    """The connection string of a fresh database without the library's tables."""
    name = await _create(databases, "template1")
    yield postgres.dsn(name)
    await _drop(databases, name)


async def _create(databases: asyncpg.Connection, template: str) -> str:
    name = f"idem_{uuid.uuid4().hex[:16]}"
    await databases.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return name


async def _drop(databases: asyncpg.Connection, name: str) -> None:
    await databases.execute(f"DROP DATABASE {name} WITH (FORCE)")


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None, *, name: str | None = None) -> str: ...


@pytest.fixture(scope="session")
def kafka_admin(kafka: str) -> Any:
    """A confluent_kafka AdminClient of the run's broker."""
    return admin_of(kafka)


def admin_of(bootstrap: str) -> Any:
    """A confluent_kafka AdminClient that does not write to the terminal when its broker is gone."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def topic(broker: Kafka, kafka_admin: Any) -> Iterator[MakeTopic]:
    """Make a topic: `topic(4)`, `topic(1, {"cleanup.policy": "compact"})`. It has a leader everywhere when this returns."""
    made: list[str] = []

    def make(partitions: int = 1, config: Mapping[str, str] | None = None, *, name: str | None = None) -> str:
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        make_topic(kafka_admin, name, partitions, config or {})
        made.append(name)
        return name

    yield make
    if isinstance(broker, ExternalKafka):
        kafka_admin.delete_topics(made)


def make_topic(admin: Any, name: str, partitions: int, config: Mapping[str, str]) -> None:
    """Make a topic through an AdminClient and wait until every partition has a leader."""
    from confluent_kafka.admin import NewTopic

    admin.create_topics([NewTopic(name, partitions, 1, config=dict(config))])[name].result(30)
    end = time.monotonic() + 30
    while True:
        found = admin.list_topics(name, timeout=10).topics[name].partitions
        if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
            return
        assert time.monotonic() < end, f"Topic {name} has no leader."
        time.sleep(0.02)


class Services:
    """Starts servers that the test may kill, stop and restart; they end with the test."""

    def __init__(self, item: pytest.Item, undo: ExitStack) -> None:
        self._item = item
        self._undo = undo

    def postgres(self, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> PostgresServer:
        """A PostgreSQL server, empty."""
        return self._undo.enter_context(PostgresServer(fsync=fsync, settings=settings))

    def kafka(self, *, properties: Mapping[str, str] | None = None) -> KafkaBroker | KafkaContainer:
        """An Apache Kafka broker, empty; the test is skipped where there can be none."""
        if can_resolve():
            return self._undo.enter_context(KafkaBroker(properties=properties))
        if docker_answers():
            return self._undo.enter_context(KafkaContainer(properties=properties))
        miss_kafka(self._item)
        raise AssertionError

    def small_broker(self) -> SmallBroker:
        """A small broker, empty."""
        return self._undo.enter_context(SmallBroker())


@pytest.fixture
def services(request: pytest.FixtureRequest) -> Iterator[Services]:
    """Servers of this test's own."""
    with ExitStack() as undo:
        yield Services(request.node, undo)

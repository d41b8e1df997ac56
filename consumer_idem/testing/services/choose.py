"""Which PostgreSQL and which Kafka this machine offers, best first; the first that starts is taken."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Protocol, TypeVar

from consumer_idem.testing.services.containers import KafkaContainer, PostgresContainer, docker_answers
from consumer_idem.testing.services.kafka import KafkaBroker
from consumer_idem.testing.services.kafka_jars import can_resolve
from consumer_idem.testing.services.postgres import PostgresServer
from consumer_idem.testing.services.process import ServiceFailed
from consumer_idem.testing.services.small_broker import SmallBroker

# Nobody kills the run's broker, so its session need not be short; on a busy machine its heartbeats might be late for that.
_UNHURRIED = {"broker.session.timeout.ms": "18000"}


class Postgres(Protocol):
    """A PostgreSQL that tests may make databases in."""

    def dsn(self, database: str = "postgres") -> str:
        """Return the connection string of `database`."""

    def start(self) -> None:
        """Start it if it is ours."""

    def close(self) -> None:
        """End it if it is ours."""


class Kafka(Protocol):
    """A broker that tests may make topics in."""

    @property
    def is_real(self) -> bool:
        """Whether it is Apache Kafka, and not the small broker."""

    @property
    def bootstrap(self) -> str:
        """The address for clients."""

    def start(self) -> None:
        """Start it if it is ours."""

    def close(self) -> None:
        """End it if it is ours."""


class ExternalPostgres:
    """The server of CONSUMER_IDEM_TEST_DSN. Its user must be allowed to create databases."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def dsn(self, database: str = "postgres") -> str:
        """Return the given connection string with another database in it."""
        head, _, options = self._dsn.partition("?")
        scheme, _, rest = head.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}/{database}" + (f"?{options}" if options else "")

    def start(self) -> None:
        """It runs already."""

    def close(self) -> None:
        """It is not ours to end."""


class ExternalKafka:
    """The cluster of CONSUMER_IDEM_TEST_KAFKA, taken for a real one."""

    is_real = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self) -> None:
        """It runs already."""

    def close(self) -> None:
        """It is not ours to end."""


def open_postgres() -> Postgres:
    """Start the PostgreSQL of this machine: CONSUMER_IDEM_TEST_DSN, else a container, else a server of our own."""
    return first_that_starts(_postgres_choices())


def open_kafka() -> Kafka:
    """Start the Kafka of this machine: CONSUMER_IDEM_TEST_KAFKA, else a container, else Kafka's jars, else the small broker."""
    return first_that_starts(_kafka_choices())


def _postgres_choices() -> Iterator[Callable[[], Postgres]]:
    given = os.environ.get("CONSUMER_IDEM_TEST_DSN")
    if given:
        yield lambda: ExternalPostgres(given)
        return
    if not os.environ.get("CONSUMER_IDEM_TEST_PG_BIN") and docker_answers():
        yield lambda: PostgresContainer(fsync=False)
    yield lambda: PostgresServer(fsync=False)


def _kafka_choices() -> Iterator[Callable[[], Kafka]]:
    given = os.environ.get("CONSUMER_IDEM_TEST_KAFKA")
    if given:
        yield lambda: ExternalKafka(given)
        return
    if docker_answers():
        yield partial(KafkaContainer, properties=_UNHURRIED)
    if can_resolve():
        yield partial(KafkaBroker, properties=_UNHURRIED)
        # A download that broke off, or a port that somebody else took meanwhile, is no reason to go without.
        yield partial(KafkaBroker, properties=_UNHURRIED)
    yield SmallBroker


class _Startable(Protocol):
    def start(self) -> None: ...
    def close(self) -> None: ...


_Service = TypeVar("_Service", bound=_Startable)


def first_that_starts(choices: Iterable[Callable[[], _Service]]) -> _Service:
    """Start one after the other until one starts, and return it, with a warning of what the others said.

    Raises ServiceFailed with that if none starts.
    """
    refusals: list[str] = []
    for choice in choices:
        with ExitStack() as undo:
            try:
                service = choice()
                undo.callback(service.close)
                service.start()
            # A container fails with errors of the engine, of HTTP and of the registry; whatever it is, the next is tried.
            except Exception as error:
                refusals.append(f"{type(error).__name__}: {error}")
            else:
                undo.pop_all()
                if refusals:
                    warnings.warn("Not the best server that there might be, since\n" + "\n".join(refusals), stacklevel=2)
                return service
    raise ServiceFailed("No server could be started here.\n" + "\n".join(refusals))

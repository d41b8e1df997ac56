"""The servers of the demo: its own, which end with it, or those that it was given."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field

from consumer_idem.demo.names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Where PostgreSQL and Kafka are; unqualified tables are the shop's. `own`: both servers end with the demo."""

    dsn: str = field(repr=False)
    kafka: str
    names: Names
    own: bool
    small_broker: bool


@asynccontextmanager
async def open_services(database: str | None, kafka: str | None) -> AsyncGenerator[Services]:
    """Start what is not given, both at once, and end it afterwards."""
    own = database is None and kafka is None
    names = Names() if own else Names(secrets.token_hex(3))
    with ExitStack() as undo:
        dsn, bootstrap = await asyncio.gather(
            asyncio.to_thread(_postgres, database, undo),
            asyncio.to_thread(_kafka, kafka, undo),
        )
        path = f"{dsn}{'&' if '?' in dsn else '?'}search_path={names.shop}"
        yield Services(dsn=path, kafka=bootstrap, names=names, own=own, small_broker=kafka is None)


def _postgres(given: str | None, undo: ExitStack) -> str:
    if given is not None:
        return given
    from consumer_idem.testing.services.postgres import PostgresServer

    server = PostgresServer()
    undo.callback(server.close)
    server.start()
    return server.dsn()


def _kafka(given: str | None, undo: ExitStack) -> str:
    if given is not None:
        return given
    from consumer_idem.testing.services.small_broker import SmallBroker

    broker = SmallBroker()
    undo.callback(broker.close)
    broker.start()
    return broker.bootstrap

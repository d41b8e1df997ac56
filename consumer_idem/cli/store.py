"""The database, for commands that need no App."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from consumer_idem.cli.options import flags

if TYPE_CHECKING:
    from consumer_idem.ports import Connection, Database
    from consumer_idem.settings import Settings


def settings_of(database: str | None, schema: str | None) -> "Settings":
    """Return the settings with these flags."""
    from consumer_idem.settings import settings_from

    return settings_from(flags(database=database, schema_name=schema))


@asynccontextmanager
async def opened(settings: "Settings") -> "AsyncGenerator[Database]":
    """Yield the database, open; close it in the end."""
    from consumer_idem.wiring import make_database

    database = make_database(settings)
    try:
        await database.open()
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def reading(settings: "Settings") -> "AsyncGenerator[Connection]":
    """Yield a connection in a transaction, to look at tables that are there and fit this version."""
    from consumer_idem.schema import verify
    from consumer_idem.transaction.short import short

    async with opened(settings) as database:
        await verify(database, settings.schema_name)
        async with short(database, settings.schema_name) as connection:
            yield connection

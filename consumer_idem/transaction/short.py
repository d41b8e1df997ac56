"""A short transaction of the library's own: no handler, no claims, no seal."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from consumer_idem.errors import DatabaseFailure
from consumer_idem.ports import Connection, Database
from consumer_idem.sql import Queries


@asynccontextmanager
async def short(database: Database, schema: str, *, script: str | None = None) -> AsyncGenerator[Connection]:
    """Begin, yield the connection, commit; on any error roll back and raise, the database's own as DatabaseFailure.

    `script` begins the transaction with other settings than the usual ones.
    """
    connection = await database.begin(script or Queries("transaction", schema)["begin_short"])
    try:
        yield connection
    except BaseException as error:
        await connection.rollback()
        if connection.fault is not None and isinstance(error, Exception):
            raise DatabaseFailure(str(error), sqlstate=getattr(error, "sqlstate", None)) from error
        raise
    await connection.commit()

"""Database on asyncpg. The only file that knows asyncpg's errors: they become Faults and DatabaseFailure here."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from secrets import token_hex
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from consumer_idem.errors import CommitUnknown, DatabaseFailure
from consumer_idem.ports import Connection, Fault, Row
from consumer_idem.postgres.sqlstate import commit_is_unknown, fault_of
from consumer_idem.sql import Queries

log = logging.getLogger(__name__)

_LOST = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)

_SQL = Queries("postgres", "idem")
_SESSION_LOCK = "advisory_lock"
"""In the name of every function that takes a lock for the session. Those for the transaction have `xact_lock`."""

_STALE_PLAN = (asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError)
"""A statement prepared before a schema change: asyncpg forgets it, so that the next run succeeds."""

_OURS = "_ci_"
_UNKNOWN_STATEMENT = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)


def _lost_by_a_proxy(error: BaseException) -> bool:
    """Tell whether this is about a statement that asyncpg has prepared, not one that a handler has named: then it is in another session."""
    return isinstance(error, _UNKNOWN_STATEMENT) and any(name in str(error) for name in (_OURS, "__asyncpg_"))


def _fault(error: BaseException, *, closed: bool) -> Fault | None:
    """Return what `error` means for the transaction; None where the server did not see the statement or was not asked."""
    if isinstance(error, _STALE_PLAN) or _lost_by_a_proxy(error):
        return Fault.INFRASTRUCTURE
    if isinstance(error, asyncpg.PostgresError):
        return fault_of(error.sqlstate)
    if isinstance(error, (OSError, TimeoutError, asyncpg.InternalClientError)) or closed:
        return Fault.INFRASTRUCTURE
    return None


class AsyncpgConnection:
    """A pooled asyncpg connection within one transaction."""

    def __init__(self, pool: "asyncpg.Pool[Any]", raw: "PoolConnectionProxy[Any]", commit_timeout: float) -> None:
        self._pool = pool
        self._raw = raw
        self._commit_timeout = commit_timeout
        self.fault: Fault | None = None
        self.cause: str | None = None
        self._holds_locks = False

    @property
    def raw(self) -> "PoolConnectionProxy[Any]":
        """The asyncpg connection."""
        return self._raw

    def in_transaction(self) -> bool:
        """Tell from what the server said last whether it is still inside the transaction."""
        if self._closed():
            self.fault = Fault.INFRASTRUCTURE
            return False
        return bool(self._raw.is_in_transaction())

    async def execute(self, sql: str, *args: Any) -> str:
        """Run one statement; return its command tag."""
        self._holds_locks |= _SESSION_LOCK in sql
        try:
            return str(await self._raw.execute(sql, *args))
        except BaseException as error:
            self._note(error)
            raise

    async def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement once per row; asyncpg sends all rows before it waits for the answer."""
        self._holds_locks |= _SESSION_LOCK in sql
        try:
            await self._raw.executemany(sql, rows)
        except BaseException as error:
            self._note(error)
            raise

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement; return its rows."""
        self._holds_locks |= _SESSION_LOCK in sql
        try:
            rows: Sequence[Row] = await self._raw.fetch(sql, *args)
            return rows
        except BaseException as error:
            self._note(error)
            raise

    async def commit(self) -> None:
        """Commit; a cancelled caller leaves COMMIT to finish by itself."""
        await asyncio.shield(asyncio.ensure_future(self._commit()))

    async def _commit(self) -> None:
        try:
            tag = await self._raw.execute("COMMIT", timeout=self._commit_timeout)
        except asyncpg.PostgresError as error:
            if commit_is_unknown(error.sqlstate):
                self._discard()
                raise CommitUnknown from error
            self._note(error)
            await self._release()
            raise DatabaseFailure(f"COMMIT failed: {error}", sqlstate=error.sqlstate) from error
        except _LOST as error:
            self._discard()
            raise CommitUnknown from error
        await self._release()
        if tag != "COMMIT":
            raise DatabaseFailure(f"COMMIT was answered with {tag}: an earlier statement had failed.", sqlstate="25P02")

    async def rollback(self) -> None:
        """Roll back; a cancelled caller leaves ROLLBACK to finish by itself."""
        await asyncio.shield(asyncio.ensure_future(self._rollback()))

    async def _rollback(self) -> None:
        try:
            if self.in_transaction():
                await self._raw.execute("ROLLBACK", timeout=self._commit_timeout)
        except (asyncpg.PostgresError, *_LOST):
            self._discard()
        else:
            await self._release()

    def _note(self, error: BaseException) -> None:
        # What the server says before it hangs up leaves asyncpg in the middle of an operation that never ends.
        if isinstance(error, asyncpg.InternalClientError):
            self._discard()
        if _lost_by_a_proxy(error):
            log.error("a proxy that pools transactions lost a prepared statement; set CONSUMER_IDEM_PREPARED_STATEMENTS=false")
        fault = _fault(error, closed=self._closed())
        if fault is not None and self.fault is None:
            self.cause = f"{type(error).__name__}: {error}"
        if fault is not None and (self.fault is None or fault.gravity > self.fault.gravity):
            self.fault = fault

    def _closed(self) -> bool:
        try:
            return bool(self._raw.is_closed())
        except asyncpg.InterfaceError:
            # asyncpg has given a connection that broke back to the pool by itself.
            return True

    def _discard(self) -> None:
        if not self._closed():
            self._raw.terminate()

    async def _release(self) -> None:
        try:
            # Everything else that a session keeps is put back by the next one that begins on it; locks block others until then.
            if self._holds_locks:
                await self._raw.execute(_SQL["unlock"], timeout=self._commit_timeout)
            await self._pool.release(self._raw)
        except (asyncpg.PostgresError, *_LOST):
            log.warning("connection could not be given back and was closed")
            self._discard()


async def _keep_as_it_is(connection: Any) -> None:
    """Skip asyncpg's reset round trip: the next transaction puts back what a handler has set, in the one that begins it."""


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg tells mypy nothing about its classes
    """Names its prepared statements as no other process does.

    asyncpg counts: behind a proxy that pools transactions, the same name may be another process's statement, and would be run.
    """

    def _get_unique_id(self, prefix: str) -> str:
        # Short, because it is sent with every row of an executemany.
        return _OURS + token_hex(8)


class AsyncpgDatabase:
    """PostgreSQL through an asyncpg pool of its own, or through `pool`, which stays the caller's to close.

    `max_size` bounds the connections of this process: a lane holds one while it settles a batch.
    `command_timeout` ends a statement that gets no answer, e.g. on a network that swallows packets.
    `statement_cache_size=0` for a transaction-pooling proxy that does not know protocol-level prepared statements.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        pool: "asyncpg.Pool[Any] | None" = None,
        max_size: int = 20,
        command_timeout: timedelta = timedelta(seconds=60),
        statement_cache_size: int = 256,
        server_settings: Mapping[str, str] | None = None,
    ) -> None:
        self._dsn = dsn
        self._pool = pool
        self._own = pool is None
        self._max_size = max_size
        self._command_timeout = command_timeout.total_seconds()
        self._statement_cache_size = statement_cache_size
        self._server_settings = {"application_name": "consumer_idem", **(server_settings or {})}

    async def open(self) -> None:
        """Connect once, so that a wrong address is reported at the start."""
        if self._pool is not None:
            return
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn,
                min_size=1,
                max_size=self._max_size,
                command_timeout=self._command_timeout,
                statement_cache_size=self._statement_cache_size,
                server_settings=self._server_settings,
                reset=_keep_as_it_is,
                connection_class=_Connection,
            )
        except (asyncpg.PostgresError, ValueError, *_LOST) as error:
            raise _cannot_connect(error) from error

    async def begin(self, script: str) -> Connection:
        """Take a connection and begin; raise DatabaseFailure if the database cannot be reached."""
        if self._pool is None:
            await self.open()
        assert self._pool is not None
        try:
            raw = await self._pool.acquire(timeout=self._command_timeout)
        except (asyncpg.PostgresError, *_LOST) as error:
            raise _cannot_connect(error) from error
        connection = AsyncpgConnection(self._pool, raw, self._command_timeout)
        try:
            await connection.execute(f"{_SQL['reset']}{script};{_SQL['discard']}" if self._own else script)
            connection._holds_locks = False
        except BaseException as error:
            await connection.rollback()
            if isinstance(error, (asyncpg.PostgresError, *_LOST)):
                raise _cannot_connect(error) from error
            raise
        return connection

    async def close(self) -> None:
        """Close the pool if it is ours; connections still in use are given ten seconds."""
        if self._pool is None or not self._own:
            return
        try:
            await asyncio.wait_for(self._pool.close(), 10)
        except TimeoutError:
            self._pool.terminate()
        self._pool = None


def _cannot_connect(error: BaseException) -> DatabaseFailure:
    sqlstate = getattr(error, "sqlstate", None)
    text = str(error) or type(error).__name__
    return DatabaseFailure(f"PostgreSQL could not be used: {text}. Check `--database` and the server.", sqlstate=sqlstate)

"""What a handler may do: its statements, deferred writes, records to publish, functions around the commit."""

import warnings
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any
from uuid import UUID

from consumer_idem.errors import TransactionLost
from consumer_idem.message import Message
from consumer_idem.ports import Connection, Row
from consumer_idem.transaction.guard import refuse_control
from consumer_idem.transaction.publishing import Publishing
from consumer_idem.transaction.synchronizer import Function, Synchronizer
from consumer_idem.transaction.unit import Unit

_MANY_SAVEPOINTS = 50
"""PostgreSQL keeps 64 subtransactions per backend in its cache; more stall replicas."""

active: ContextVar["Tx | None"] = ContextVar("consumer_idem_tx", default=None)


class Tx(Publishing):
    """One handler call's view of the transaction. It ends with the call and refuses everything afterwards.

    Statements take native placeholders ($1, $2, …). The first one sends the deferred writes of earlier messages, so
    that a handler reads what they wrote.
    """

    __slots__ = ("registered", "sent")

    def __init__(self, unit: Unit, message: Message | None, key_hash: UUID | None, source: str) -> None:
        super().__init__(unit, message, key_hash, source)
        self.sent = False
        self.registered: Synchronizer | None = None

    # What it is about

    @property
    def message(self) -> Message:
        """The message that this call handles; a batch handler finds each at its item."""
        if self._message is None:
            raise AttributeError("A batch handler's tx has no message of its own: use `item.message`.")
        return self._message

    def now(self) -> datetime:
        """Return the message's time: the same value when the handler runs again for it."""
        if self.message.time is None:
            raise ValueError("This message carries no Kafka timestamp, so there is no time that a repeated run would see again.")
        return self.message.time

    # Statements

    async def execute(self, sql: str, *args: Any) -> str:
        """Run one statement; return its command tag, e.g. `UPDATE 1`."""
        connection = await self._ready(sql)
        return await connection.execute(sql, *args)

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement once per row of arguments, in one round trip."""
        connection = await self._ready(sql)
        await connection.executemany(sql, list(rows))

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement; return its rows."""
        connection = await self._ready(sql)
        return await connection.fetch(sql, *args)

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        """Run one statement; return its first row, None if there is none."""
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        """Run one statement; return the first column of its first row, None if there is none."""
        row = await self.fetchrow(sql, *args)
        return None if row is None else next(iter(row.values()))

    @property
    def connection(self) -> "HandlerConnection":
        """The connection, for code below the handler that wants one; it cannot end the transaction."""
        self._refuse_if_ended()
        self.sent = True
        return HandlerConnection(self)

    def defer(self, sql: str, *args: Any, key: str | None = None) -> None:
        """Write later: all deferred writes of a batch go out with one round trip per distinct statement.

        What it costs: no row count and no RETURNING; statements of other messages of the batch may run in between;
        statements that are awaited later in the batch see it, those of this call before it do not. Writes with the
        same `key` keep their order, also over different statements; leave it out only for writes that commute. A check
        (such as sufficient funds) belongs into a constraint or an awaited statement. Don't mix both in one handler:
        each awaited statement sends what is deferred, and the gain is gone.
        """
        self._refuse_if_ended()
        refuse_control(sql)
        self._unit.writes.append((sql, args, key))

    async def lock_keys(self, *keys: str) -> None:
        """Take transaction-long locks on names of your choice, in an order that cannot deadlock with other calls' own."""
        connection = await self._ready("")
        await connection.fetch(self._unit.lock_keys_sql, list(keys))

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """Undo what is done inside if the block raises: statements, deferred writes, records and registrations."""
        connection = await self._ready("")
        self._unit.savepoints += 1
        if self._unit.savepoints == _MANY_SAVEPOINTS:
            warnings.warn("More than 50 savepoints in one transaction slow PostgreSQL down; use a smaller batch.", stacklevel=3)
        name = f"consumer_idem_{self._unit.savepoints}"
        fault, mark, registered = connection.fault, self._unit.mark(), self.synchronizer.mark()
        await connection.execute(f"SAVEPOINT {name}")
        try:
            yield
            await self._ready("")
        except BaseException:
            self._unit.undo_to(mark)
            self.synchronizer.undo_to(registered)
            await connection.execute(f"ROLLBACK TO SAVEPOINT {name}")
            connection.fault = fault
            self._unit.flush_failed = False
            raise
        await connection.execute(f"RELEASE SAVEPOINT {name}")

    # Around the end

    @property
    def synchronizer(self) -> Synchronizer:
        """Where this call registers; made when the first function is."""
        if self.registered is None:
            self.registered = Synchronizer()
        return self.registered

    def before_commit(self, function: Function, *args: Any, **kwargs: Any) -> None:
        """Run `function` after the last handler of the batch; if it raises, the messages run again, at last alone."""
        self._refuse_if_ended()
        self.synchronizer.register_before_commit(function, *args, **kwargs)

    def after_commit(self, function: Function, *args: Any, **kwargs: Any) -> None:
        """Run `function` once the commit is confirmed; never if it is not, and lost in a crash."""
        self._refuse_if_ended()
        self.synchronizer.register_after_commit(function, *args, **kwargs)

    def after_rollback(self, function: Function, *args: Any, **kwargs: Any) -> None:
        """Run `function` once it is certain that this call's effect is undone; lost in a crash."""
        self._refuse_if_ended()
        self.synchronizer.register_after_rollback(function, *args, **kwargs)

    # The library's side

    async def raw(self) -> Any:
        """Return the driver's own connection, for an adapter's use: what it ends is found out at the seal."""
        return (await self._ready("")).raw

    async def _ready(self, sql: str) -> Connection:
        self._refuse_if_ended()
        refuse_control(sql)
        self.sent = True
        unit = self._unit
        if not unit.connection.in_transaction():
            raise TransactionLost
        if unit.writes or unit.flush_failed:
            await unit.flush()
        return unit.connection


def after_commit(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Run `function` after the commit of the active transaction; without one, run it at once and return its result.

    For code far below the handler that does not know whether a handler called it.
    """
    tx = active.get()
    if tx is None:
        return function(*args, **kwargs)
    tx.after_commit(function, *args, **kwargs)
    return None


class HandlerConnection:
    """The transaction's connection with asyncpg's names, for code that expects one. `transaction()` is a savepoint.

    What asyncpg offers beyond these would bypass the transaction's guards and is not passed on, COPY aside.
    """

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.execute = tx.execute
        self.executemany = tx.executemany
        self.fetch = tx.fetch
        self.fetchrow = tx.fetchrow
        self.fetchval = tx.fetchval
        self.transaction = tx.savepoint

    async def copy_records_to_table(self, table: str, **options: Any) -> str:
        """Like asyncpg's: COPY records into a table; return the command tag."""
        raw = await self._tx.raw()
        return str(await raw.copy_records_to_table(table, **options))

"""The outbox: records that a transaction leaves behind, to be published once it has committed."""

from collections.abc import Sequence
from typing import Any, Protocol

from consumer_idem.columns import once, unless_null
from consumer_idem.errors import OutsideTransaction
from consumer_idem.outbox.limits import RecordLimits
from consumer_idem.outbox.record import PendingRecord
from consumer_idem.outbox.shard import shard_of
from consumer_idem.sql import Queries
from consumer_idem.stored import stored_headers


class Executor(Protocol):
    """A connection of the library's, or asyncpg's own."""

    async def execute(self, sql: str, /, *args: Any) -> Any:
        """Run one statement."""


class Outbox:
    """Adds records within the caller's transaction, whoever began it.

    Records of one key are published in the order of their ids. Two transactions that add to one key side by side, with no
    lock of yours between them, may commit in the other order; `in_order=True` makes them take turns, from `add` to the end
    of the transaction.
    """

    def __init__(self, schema: str = "idem", *, in_order: bool = False, limits: RecordLimits | None = None) -> None:
        self._limits = limits
        self._sql = Queries("outbox", schema)
        self._add = self._sql["add_in_order" if in_order else "add"]

    async def add(self, connection: Executor, records: PendingRecord | Sequence[PendingRecord]) -> None:
        """Add the record, or all of them in this order, with one statement; best at the end of the transaction.

        `connection` is a Connection of this library's or an asyncpg connection; raises OutsideTransaction if no transaction
        was begun on it, and RecordTooLarge for a record that its topic is known not to take. Nothing is published before it
        commits.
        """
        if not _in_transaction(connection):
            raise OutsideTransaction
        if isinstance(records, PendingRecord):
            records = (records,)
        if self._limits is not None:
            for record in records:
                self._limits.check(record)
        if records:
            await connection.execute(self._add, *_columns(records))


def _in_transaction(connection: Any) -> bool:
    asked = getattr(connection, "in_transaction", None) or connection.is_in_transaction
    return bool(asked())


def _columns(records: Sequence[PendingRecord]) -> tuple[Sequence[Any], ...]:
    ids, topics, keys, values, headers, types, sources, times = map(list, zip(*records, strict=True))
    return (
        ids,
        [shard_of(topic, key, id) for topic, key, id in zip(topics, keys, ids, strict=True)],
        once(topics),
        unless_null(keys),
        unless_null(values),
        unless_null([stored_headers(one) for one in headers]) if any(headers) else [],
        unless_null(types),
        once(sources),
        unless_null([None if time is None else time.timestamp() for time in times]),
    )

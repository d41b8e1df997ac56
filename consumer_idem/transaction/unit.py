"""What the handler calls of one transaction share."""

from uuid import UUID

from consumer_idem import telemetry
from consumer_idem.errors import ConsumerIdemError
from consumer_idem.outbox.limits import RecordLimits
from consumer_idem.outbox.record import PendingRecord
from consumer_idem.ports import Connection
from consumer_idem.sql import Queries
from consumer_idem.transaction.deferred import Deferred, Write


class WritesNotSent(ConsumerIdemError):
    """Deferred writes of this transaction could not be sent, so it cannot be committed. Its messages run again, at last alone."""


class Unit:
    """What the calls of one transaction share: the connection, the writes that wait to be sent, the records to publish."""

    __slots__ = ("attempt", "connection", "flush_failed", "limits", "lock_keys_sql", "records", "savepoints", "traced", "writes")

    def __init__(self, connection: Connection, attempt: UUID, schema: str, limits: RecordLimits) -> None:
        self.connection = connection
        self.attempt = attempt
        self.limits = limits
        self.flush_failed = False
        self.savepoints = 0
        # Asked once: what a handler starts within this transaction's span is recorded only if that is.
        self.traced = telemetry.recording()
        self.lock_keys_sql = Queries("transaction", schema)["lock_keys"]
        self.writes: list[Write] = []
        self.records: list[PendingRecord] = []

    async def flush(self) -> None:
        """Send the deferred writes, one executemany per statement; raise WritesNotSent for ever once that has failed."""
        # The server need not know: the driver refuses an argument by itself, and a handler may have swallowed that.
        if self.flush_failed:
            raise WritesNotSent
        if not self.writes:
            return
        # Set before, cleared after: a failure here may be any message's, also if a handler swallows it.
        self.flush_failed = True
        deferred = Deferred()
        deferred.add(self.writes)
        self.writes.clear()
        for sql, rows in deferred.take():
            await self.connection.executemany(sql, rows)
        self.flush_failed = False

    def mark(self) -> tuple[int, int]:
        """Return a mark for `undo_to`."""
        return len(self.writes), len(self.records)

    def undo_to(self, mark: tuple[int, int]) -> None:
        """Forget what was deferred and published since `mark`."""
        del self.writes[mark[0] :]
        del self.records[mark[1] :]

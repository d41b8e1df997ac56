"""How a transaction over messages begins, with settings that are all local to it."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from consumer_idem.ports import Connection, Database
from consumer_idem.sql import Queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """`lock_timeout`: the longest wait for a key that another worker holds.

    `idle_timeout` and `statement_timeout`: PostgreSQL ends a transaction that waits so long for its client between two statements,
    or works so long on one, so that a stopped worker's locks do not block its successor; what neither of them ends,
    `end_silent` does. Both must be below the Kafka session time-out.
    """

    schema: str
    lock_timeout: timedelta = timedelta(seconds=3)
    idle_timeout: timedelta = timedelta(seconds=10)
    statement_timeout: timedelta = timedelta(seconds=20)

    async def attempt(self, database: Database, attempt: UUID) -> Connection:
        """Begin the transaction of this attempt; raise DatabaseFailure if the database cannot be reached."""
        script = Queries("transaction", self.schema)["begin"].format(
            attempt=attempt,
            lock_timeout=_milliseconds(self.lock_timeout),
            idle_timeout=_milliseconds(self.idle_timeout),
            statement_timeout=_milliseconds(self.statement_timeout),
        )
        return await database.begin(script)


def _milliseconds(duration: timedelta) -> int:
    return int(duration / timedelta(milliseconds=1))

"""Attempts of lone runs, counted where a crash cannot forget them, and marks of runs that may kill their process."""

from uuid import UUID

from consumer_idem.inbox.progress import Slot
from consumer_idem.ports import Connection
from consumer_idem.sql import Queries


class Attempts:
    """Every method is one statement inside the caller's transaction; a fenced owner changes nothing and gets None."""

    def __init__(self, schema: str) -> None:
        self._sql = Queries("inbox", schema)

    async def count_failure(
        self, connection: Connection, slot: Slot, offset: int, error: str, fence: tuple[int, UUID] | None
    ) -> int | None:
        """Count a failed lone run; return how many there are. `fence` is (epoch, owner), None without progress."""
        return await self._count(connection, "count_failure", slot, offset, error, *(fence or (None, None)))

    async def mark(self, connection: Connection, slot: Slot, offset: int, fence: tuple[int, UUID], *, again: bool = True) -> int | None:
        """Mark a run that is about to start; return how many runs have been marked and not ended, this one included.

        None as well, if not `again`, where another run has been marked and not ended.
        """
        return await self._count(connection, "mark_in_doubt", slot, offset, *fence, again)

    async def unmark(self, connection: Connection, slot: Slot, offset: int) -> None:
        """Take the mark back: the process outlived the run."""
        await connection.execute(self._sql["unmark"], slot.group, slot.topic, slot.partition, offset)

    async def forget(self, connection: Connection, slot: Slot, offset: int) -> None:
        """Delete what was counted: this transaction settles the message, and its quarantine entry, if it has one, keeps the number."""
        await connection.execute(self._sql["forget_attempts"], slot.group, slot.topic, slot.partition, offset)

    async def _count(self, connection: Connection, name: str, slot: Slot, *args: object) -> int | None:
        rows = await connection.fetch(self._sql[name], slot.group, slot.topic, slot.partition, *args)
        return int(next(iter(rows[0].values()))) if rows else None

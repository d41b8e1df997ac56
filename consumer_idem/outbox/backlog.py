"""The relay's side of the outbox table: read what is to be published, forget what was, park what never can be."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from consumer_idem.outbox.entry import Entry, Unfit, entry_of
from consumer_idem.outbox.horizon import Writers
from consumer_idem.outbox.shard import SHARDS
from consumer_idem.ports import Database
from consumer_idem.sql import Queries
from consumer_idem.transaction.short import short

Epochs = Mapping[int, int]
"""The shards that a relay owns, each with the epoch of its ownership."""

_NOBODY = -1


class Wanted(NamedTuple):
    """What to read; the fields are the arguments of read.sql, in their order."""

    above: int
    change: int
    """The count of operators' changes for which `above` holds; after another change everything is read from the start."""
    shards: Sequence[int]
    without: Sequence[str]
    """Topics to leave out."""
    known: Sequence[int]
    """Ids to leave out: they are in memory."""
    records: int
    bytes: int


class Page(NamedTuple):
    """What one read found, in the order of the ids, and the count of changes that operators had made by then."""

    entries: Sequence[Entry | Unfit]
    change: int

    @property
    def last(self) -> int | None:
        """The highest id on it, None if it is empty."""
        if not self.entries:
            return None
        entry = self.entries[-1]
        return entry.entry.id if isinstance(entry, Unfit) else entry.id

    @property
    def bytes(self) -> int:
        """The bytes of all values on it."""
        return sum([entry.entry.size if isinstance(entry, Unfit) else entry.size for entry in self.entries])


class Backlog:
    """Every method is a short transaction of its own."""

    def __init__(self, database: Database, schema: str, owner: UUID) -> None:
        self._database = database
        self._schema = schema
        self._owner = owner
        self._sql = Queries("outbox", schema)
        self._ending: asyncio.Future[None] | None = None

    async def read(self, wanted: Wanted) -> Page:
        """Return the next records; from the start of the table if operators have changed something since."""
        above, change, shards, without, known, records, size = wanted
        connection = await self._database.begin(self._sql["begin_read"])
        try:
            rows = await connection.fetch(self._sql["read"], above, change, shards, without, _array(known), records, size)
        finally:
            # Nothing was written, so that nothing need wait for the end: a record is on its way a round trip earlier.
            self._ending = asyncio.ensure_future(connection.rollback())
        return Page([entry_of(row) for row in rows if row["id"] is not None], rows[0]["change"])

    async def settle(self, landed: Sequence[Entry], unfit: Sequence[Unfit], epochs: Epochs) -> int:
        """Delete what is acknowledged and park what never can be sent, where the shard is ours; return how many are deleted."""
        owned = [epochs.get(shard, _NOBODY) for shard in range(SHARDS)]
        deleted = "DELETE 0"
        async with short(self._database, self._schema, script=self._sql["begin_write"]) as connection:
            if landed:
                ids, message_ids = _array(entry.id for entry in landed), _array(entry.record.id for entry in landed)
                deleted = await connection.execute(self._sql["forget"], ids, message_ids, self._owner, owned)
            if unfit:
                ids, message_ids = _array(each.entry.id for each in unfit), _array(each.entry.record.id for each in unfit)
                await connection.execute(self._sql["park"], ids, message_ids, self._owner, owned, [each.error for each in unfit])
        return int(deleted.rpartition(" ")[2])

    async def hold(self, topics: Mapping[str, str]) -> None:
        """Write down which topics take no records, and why."""
        async with short(self._database, self._schema, script=self._sql["begin_write"]) as connection:
            await connection.execute(self._sql["hold"], self._owner, list(topics), list(topics.values()))

    async def unhold(self, topics: Sequence[str]) -> None:
        """Write down that they take records again."""
        async with short(self._database, self._schema, script=self._sql["begin_write"]) as connection:
            await connection.execute(self._sql["unhold"], self._owner, topics)

    async def writers(self) -> Writers:
        """Return which transactions are adding records at this moment."""
        async with short(self._database, self._schema, script=self._sql["begin_read"]) as connection:
            (row,) = await connection.fetch(self._sql["writers"])
        return Writers(row["server"], row["last"], frozenset(row["writers"]))


def _array(values: Iterable[int | UUID]) -> str:
    """Return a PostgreSQL array as text: asyncpg examines every element of a list, which for thousands of ids is felt."""
    return "{" + ",".join(map(str, values)) + "}"

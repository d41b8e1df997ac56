"""Records that wait in the outbox, found by the message whose handler left them."""

from collections.abc import Sequence
from uuid import UUID

from consumer_idem.outbox.record import record_id
from consumer_idem.ports import Connection, Row
from consumer_idem.sql import Queries

_TOLD = ("id", "message_id", "topic", "created_at", "error", "status")
_ORDINALS = 100
"""So many records of one message are looked for in each topic."""


class Unpublished:
    """Reads the outbox within the caller's transaction. It is searched as a whole, since it is small when all is well."""

    def __init__(self, schema: str) -> None:
        self._sql = Queries("outbox", schema)

    async def of_message(self, connection: Connection, key_hash: UUID, generation: int) -> Sequence[Row]:
        """Return the records of one message that are not published yet, in order; those with an `id=` of the user's are not found."""
        topics = [row["topic"] for row in await connection.fetch(self._sql["topics"])]
        ids = [record_id(key_hash, count, topic, n) for count in range(generation + 1) for topic in topics for n in range(_ORDINALS)]
        rows = await connection.fetch(self._sql["list"], None, None, 0, None, ids) if ids else ()
        return [{name: row[name] for name in _TOLD} for row in rows]

"""What operators see of the outbox and do to it. Whatever they do is audited in the same transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from consumer_idem.message import Header
from consumer_idem.ports import Connection, Row
from consumer_idem.sql import Queries
from consumer_idem.stored import loaded_headers


class Status(StrEnum):
    """Why a record is still in the outbox."""

    PENDING = "pending"
    """A relay will publish it."""
    PARKED = "parked"
    """It can never be sent as it is; `error` says why. It waits for a retry or a drop."""
    BLOCKED = "blocked"
    """An earlier record of its key is parked."""
    TOPIC_HELD = "topic-held"
    """Its topic takes no records now; `error` says why. It goes on by itself once the topic does."""
    HELD = "held"
    """It belongs to a replay run and waits for its release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record that is in the outbox now. `value`, `headers` and `message_time` are filled in by `show` only."""

    id: int
    message_id: UUID
    status: Status
    topic: str
    key: bytes | None
    type: str | None
    source: str
    shard: int
    run: int | None
    created_at: datetime
    size: int | None
    """The bytes of the value; None for a tombstone."""
    error: str | None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    message_time: datetime | None = None


class OutboxDesk:
    """The verbs of `consumer-idem outbox`. Every method is one statement, or two, inside the caller's transaction."""

    def __init__(self, schema: str = "idem") -> None:
        self._sql = Queries("outbox", schema)

    async def list(
        self, connection: Connection, *, status: Status | None = None, topic: str | None = None, above: int = 0, limit: int = 100
    ) -> Sequence[StoredRecord]:
        """Return the records in the order of their ids, those above the id `above`, at most `limit`."""
        rows = await connection.fetch(self._sql["list"], status, topic, above, limit, None)
        return [_stored(row) for row in rows]

    async def show(self, connection: Connection, id: int) -> StoredRecord | None:
        """Return the record with its value and headers; None if it is not in the outbox, e.g. because it was published."""
        listed = await connection.fetch(self._sql["list"], None, None, id - 1, 1, None)
        if not listed or listed[0]["id"] != id:
            return None
        (row,) = await connection.fetch(self._sql["show"], id)
        return replace(_stored(listed[0]), value=row["value"], headers=loaded_headers(row["headers"]), message_time=row["message_time"])

    async def audited(self, connection: Connection, id: int) -> Sequence[Row]:
        """Return what operators did to the record, the first act first; also once it is not in the outbox any more."""
        return await connection.fetch(self._sql["audited"], id)

    async def retry(self, connection: Connection, ids: Sequence[int], *, operator: str, reason: str) -> Sequence[int]:
        """Let the relay try parked records again, in their old place in the order; return the ids of those that were parked."""
        rows = await connection.fetch(self._sql["retry"], ids, operator, reason)
        return [row["record"] for row in rows]

    async def drop(self, connection: Connection, ids: Sequence[int], *, operator: str, reason: str) -> Sequence[int]:
        """Delete parked or pending records unpublished and free their keys; return the ids of those that were there.

        A record that a relay has in its hands at this moment may arrive all the same, and behind later ones of its key. What a
        replay run holds is not dropped.
        """
        rows = await connection.fetch(self._sql["drop"], ids, operator, reason)
        return [row["record"] for row in rows]


def _stored(row: Row) -> StoredRecord:
    return StoredRecord(**{**row, "status": Status(row["status"])})

"""The quarantine: messages that need a person, kept with their evidence."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from consumer_idem.ports import Connection, Row
from consumer_idem.sql import Queries


class Entry(NamedTuple):
    """One row to insert; the fields are the columns, in the order of add.sql. `fields` is a JSON list of names."""

    state: str
    reason: str
    error: str
    fields: str
    consumer_group: str
    scope: int | None
    source: int | None
    key_hash: UUID | None
    tenant: str | None
    message_id: str | None
    fingerprint: bytes | None
    fingerprint_version: int | None
    topic: int
    partition: int
    offset: int
    message_time: datetime | None
    key: bytes | None
    value: bytes | None
    headers: str | None
    attempts: int


class Quarantine:
    """Keeps what a person must decide about."""

    def __init__(self, schema: str) -> None:
        self._sql = Queries("quarantine", schema)

    async def add(self, connection: Connection, entries: Sequence[Entry]) -> None:
        """Keep the entries; one that stands for the same position and scope already is left as it is."""
        if entries:
            await connection.execute(self._sql["add"], *(list(column) for column in zip(*entries, strict=True)))

    async def find(self, connection: Connection, key_hash: UUID) -> Sequence[Row]:
        """Return the entries of a key, in every state, oldest first; without key, value and headers."""
        return await connection.fetch(self._sql["find"], key_hash)

    async def newest(self, connection: Connection, reason: str | None, limit: int) -> Sequence[Row]:
        """Return the newest open entries, of one reason or of all; without key, value and headers."""
        return await connection.fetch(self._sql["newest"], reason, limit)

    async def read(self, connection: Connection, id: int) -> Row | None:
        """Return one entry with its evidence, None if there is none."""
        rows = await connection.fetch(self._sql["read"], id)
        return rows[0] if rows else None

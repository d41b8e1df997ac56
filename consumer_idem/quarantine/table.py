"""The quarantine: messages that need a person, kept with their evidence, and what was done about them."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta
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
    kept: str | None
    topic: int
    partition: int
    offset: int
    message_time: datetime | None
    key: bytes | None
    value: bytes | None
    headers: str | None
    attempts: int
    release_after: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Which entries are meant: those that match all that is given. `handler` is a scope; `state` None: every state."""

    state: str | None = "open"
    reason: str | None = None
    handler: str | None = None
    topic: str | None = None
    since: datetime | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Where entries are looked for by their text: those of a group from these topics, of these scopes or of none."""

    group: str
    topics: Sequence[str]
    scopes: Sequence[str]
    newest: int = 1000
    limit: int = 20


class Identity(NamedTuple):
    """The idempotency key of an entry that had none when it was made."""

    key_hash: UUID | None = None
    tenant: str | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A release for the audit trail: who, why, and what came of it.

    `new_id`: the id under which a conflict was handled as a message of its own; `edited`: the payload that replaced the original.
    """

    operator: str
    note: str
    outcome: str
    error: str = ""
    new_id: str | None = None
    edited: bytes | None = None
    identity: Identity = field(default_factory=Identity)


class Due(NamedTuple):
    """How a scope's entries are released by themselves: after `first`, doubled up to `longest`, so often at `most`."""

    scope: int
    first: timedelta
    longest: timedelta
    most: int


class Quarantine:
    """Keeps what a person must decide about. Every method works inside the caller's transaction."""

    def __init__(self, schema: str) -> None:
        self._sql = Queries("quarantine", schema)

    async def add(self, connection: Connection, entries: Sequence[Entry]) -> None:
        """Keep the entries; one that stands for the same message and scope already is left as it is.

        The same message is one at the same position with the same time and content.
        """
        if entries:
            await connection.execute(self._sql["add"], *(list(column) for column in zip(*entries, strict=True)))

    # Looking

    async def find(self, connection: Connection, key_hash: UUID) -> Sequence[Row]:
        """Return the entries of a key, in every state, oldest first; without key, value and headers."""
        return await connection.fetch(self._sql["find"], key_hash)

    async def holding(self, connection: Connection, where: Holding, patterns: Sequence[str]) -> Sequence[Row]:
        """Return some entries without an id whose bytes match every pattern, oldest first, of the newest `where.newest` of them."""
        return await connection.fetch(self._sql["holding"], where.group, where.topics, where.scopes, patterns, where.newest, where.limit)

    async def list(self, connection: Connection, matching: Matching, *, above: int = 0, limit: int = 100) -> Sequence[Row]:
        """Return the matching entries with an id above `above`, oldest first; without key, value and headers."""
        return await connection.fetch(self._sql["list"], *astuple(matching), above, limit)

    async def group(self, connection: Connection, matching: Matching, *, limit: int = 100) -> Sequence[Row]:
        """Return the matching entries as groups of one state, reason, handler and kind of error; the one with the latest entry first.

        Where `errors_differ`, `error` has … for what differs. `all_groups` and `all_entries` tell what there is in all.
        """
        return await connection.fetch(self._sql["group"], *astuple(matching), limit)

    async def read(self, connection: Connection, id: int) -> Row | None:
        """Return one entry with its evidence, None if there is none."""
        rows = await connection.fetch(self._sql["read"], id)
        return rows[0] if rows else None

    async def audited(self, connection: Connection, id: int) -> Sequence[Row]:
        """Return what was done about an entry, in that order."""
        return await connection.fetch(self._sql["audited"], id)

    # Deciding

    async def take(self, connection: Connection, ids: Sequence[int]) -> Sequence[int]:
        """Lock the entries until the transaction ends; return the ids of those that are open.

        Waits for a transaction that releases or discards one of them, at most the transaction's lock_timeout.
        """
        return [row["id"] for row in await connection.fetch(self._sql["take"], ids)]

    async def settle(self, connection: Connection, id: int, state: str, act: Act, attempt: UUID) -> bool:
        """Seal the release `attempt` of an entry: give it its state, and audit it; False if it may not be committed."""
        last = (act.operator, act.note, act.outcome, act.error, act.new_id, act.edited)
        return bool(await connection.fetch(self._sql["settle"], id, attempt, state, *act.identity, *last))

    async def keep(self, connection: Connection, id: int, act: Act, *, failures: int, conflict: Sequence[str] | None = None) -> bool:
        """Note a release that came to nothing: the entry stays open; False if it is not open any more.

        `conflict`: the fields that differ, if the release has shown that the key is settled with another content.
        """
        reason = None if conflict is None else "conflict"
        last = (act.operator, act.note, act.outcome, act.new_id, act.edited)
        return bool(await connection.fetch(self._sql["keep"], id, act.error, failures, reason, list(conflict or ()), *act.identity, *last))

    async def committed(self, connection: Connection, id: int, attempt: UUID) -> bool:
        """Tell whether a release whose commit got no clear answer was committed; waits for one that is still pending."""
        await self.take(connection, [id])
        return bool((await connection.fetch(self._sql["committed"], id, attempt))[0]["committed"])

    async def discard(self, connection: Connection, ids: Sequence[int], *, operator: str, note: str) -> Sequence[int]:
        """Close entries for good; return the ids of those that were open. Their keys stay taken: equal copies are skipped."""
        open_ids = await self.take(connection, ids)
        return [row["entry"] for row in await connection.fetch(self._sql["discard"], open_ids, operator, note)]

    async def due(self, connection: Connection, group: str, policies: Sequence[Due]) -> int | None:
        """Return the id of the entry that has waited longest for its release time, None if none is due.

        It is counted as a release, and put off to its next time: commit that before the handler runs.
        """
        rows = await connection.fetch(self._sql["due"], group, *(list(column) for column in zip(*policies, strict=True)))
        return rows[0]["id"] if rows else None

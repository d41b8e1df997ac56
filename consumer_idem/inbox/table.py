"""The inbox: the keys that each scope has settled. Every method is one statement inside the caller's transaction."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from consumer_idem.columns import once, unless_null
from consumer_idem.errors import ConsumerIdemError
from consumer_idem.inbox.verdict import Held
from consumer_idem.outcome import Rejected
from consumer_idem.ports import Connection, Row
from consumer_idem.sql import Queries

_ALIKE = frozenset({"scope", "source", "topic", "partition", "fingerprint_version"})
"""Columns that are the same in most batches and never null: sent once then."""
_REINSERTS = 3
"""So often a key may vanish (pruned, or its transaction rolled back) between losing the claim and reading the winner."""


class KeysVanish(ConsumerIdemError):
    """Keys keep vanishing from the inbox between claim and reading. The worker tries again; look for what deletes its rows."""


class Content(NamedTuple):
    """What is compared when a key is held already, as columns of one length, in the order of claim.sql and repeated.sql."""

    key_hash: Sequence[UUID]
    scope: Sequence[int]
    source: Sequence[int]
    topic: Sequence[int]
    partition: Sequence[int]
    offset: Sequence[int]
    message_id: Sequence[str]
    tenant: Sequence[str | None]
    fingerprint: Sequence[bytes]
    fingerprint_version: Sequence[int]

    def sent(self) -> list[Sequence[Any]]:
        """Return the columns as the .sql files take them: what is the same in all rows only once, what is always null not at all."""
        return [once(column) if name in _ALIKE else unless_null(column) for name, column in zip(self._fields, self, strict=True)]


class Claims(NamedTuple):
    """Rows to insert."""

    content: Content
    message_time: Sequence[float | None]
    """In seconds since 1970."""
    field_digests: Sequence[bytes]
    kept: Sequence[str | None]

    def sent(self) -> list[Sequence[Any]]:
        """Return the columns as claim.sql takes them."""
        return [*self.content.sent(), unless_null(self.message_time), self.field_digests, unless_null(self.kept)]


class Repeated(NamedTuple):
    """Which rows of a Content are held by the very same, applied: by their place, from 0."""

    redelivered: Sequence[int]
    """The same delivery once more."""
    copies: Sequence[int]
    """Another delivery."""
    noted: bool
    """Whether the copies are in their table: so if nothing else was asked for, since no handler can put them off then."""


class Copies(NamedTuple):
    """Duplicates that came under another position than the copy that holds the key, as columns of one length."""

    key_hash: Sequence[UUID]
    topic: Sequence[int]
    partition: Sequence[int]
    offset: Sequence[int]


class Inbox:
    """Claims keys, and keeps what became of them."""

    def __init__(self, schema: str) -> None:
        self._sql = Queries("inbox", schema)

    async def claim(self, connection: Connection, attempt: UUID, claims: Claims) -> dict[UUID, Held]:
        """Claim every key, insert first; return who holds those that were lost. All others are fresh and ours.

        Waits for a transaction that holds the key and is not decided yet, at most the transaction's lock_timeout.
        """
        wanted = len(claims.content.key_hash)
        if not wanted:
            return {}
        columns = claims.sent()
        claim, inserted = self._sql["claim"], 0
        for _ in range(_REINSERTS + 1):
            lost = [row["key_hash"] for row in await connection.fetch(claim, *columns, attempt)]
            inserted += wanted - len(lost)
            if inserted == wanted:
                return {}
            # A second statement: only its new snapshot sees the row that the first one waited for.
            held = await self._held(connection, attempt, lost)
            if inserted + len(held) >= wanted:
                return held
        raise KeysVanish

    async def repeated(self, connection: Connection, content: Content, passed: int) -> Repeated:
        """Return what needs no claim, because it is a duplicate for certain. Much cheaper than claims that are lost.

        If that is all of it, the copies are noted as `repeat` does, those from offset `passed` on.
        """
        (row,) = await connection.fetch(self._sql["repeated"], *content.sent(), passed)
        return Repeated([place - 1 for place in row["redelivered"]], [place - 1 for place in row["copies"]], row["noted"])

    async def _held(self, connection: Connection, attempt: UUID, key_hashes: Sequence[UUID]) -> dict[UUID, Held]:
        rows = await connection.fetch(self._sql["held"], key_hashes, attempt)
        return {row["key_hash"]: _held(row) for row in rows}

    async def free(self, connection: Connection, key_hash: UUID, position: tuple[int, int, int]) -> None:
        """Give up the claim of the quarantined copy at `position`, so that this transaction, which releases it, can claim anew."""
        await connection.execute(self._sql["free"], key_hash, *position)

    async def settle(self, connection: Connection, attempt: UUID, dropped: Sequence[UUID], statuses: Sequence[tuple[UUID, str]]) -> None:
        """Delete the claims of what is not settled by this transaction, and write the status of what was not applied."""
        if dropped or statuses:
            keys = [key for key, _ in statuses]
            await connection.execute(self._sql["settle"], attempt, dropped, keys, [status for _, status in statuses])

    async def answer(self, connection: Connection, answers: Sequence[tuple[UUID, Rejected]]) -> None:
        """Remember refusals, so that a repeat gets the same."""
        if answers:
            details = [None if refusal.detail is None else json.dumps(dict(refusal.detail)) for _, refusal in answers]
            await connection.execute(self._sql["answer"], [key for key, _ in answers], [refusal.code for _, refusal in answers], details)

    async def repeat(self, connection: Connection, copies: Copies) -> None:
        """Append duplicates to their table; the inbox row is not touched, since an update would block other workers."""
        if copies.key_hash:
            columns = copies.key_hash, once(copies.topic), once(copies.partition), copies.offset
            await connection.execute(self._sql["repeat"], *columns)

    async def find(self, connection: Connection, key_hash: UUID) -> Row | None:
        """Return what became of a key, None if it was never settled here."""
        rows = await connection.fetch(self._sql["find"], key_hash)
        return rows[0] if rows else None

    async def repeats(self, connection: Connection, key_hash: UUID) -> Sequence[Row]:
        """Return where and when duplicates of a key were seen, in that order; plain redeliveries are not among them."""
        return await connection.fetch(self._sql["repeats"], key_hash)


def _held(row: Row) -> Held:
    answer = None if row["code"] is None else Rejected(row["code"], None if row["detail"] is None else json.loads(row["detail"]))
    return Held(
        attempt_id=row["attempt_id"],
        scope=row["scope"],
        source=row["source"],
        tenant=row["tenant"],
        message_id=row["message_id"],
        position=(row["topic"], row["partition"], row["offset"]),
        fingerprint=row["fingerprint"],
        fingerprint_version=row["fingerprint_version"],
        field_digests=row["field_digests"],
        answer=answer,
    )

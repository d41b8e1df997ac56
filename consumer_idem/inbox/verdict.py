"""What the inbox says about a message before its handler runs. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from consumer_idem.inbox.fingerprint import Print
from consumer_idem.outcome import Rejected


class Held(NamedTuple):
    """The copy that holds a key: its inbox row, or an earlier message of the same batch. `attempt_id` None: not in the database yet.

    A named tuple, since two are made for every duplicate.
    """

    attempt_id: UUID | None
    scope: int
    source: int
    tenant: str | None
    message_id: str
    position: tuple[int, int, int]
    """Topic (its small integer), partition, offset."""
    fingerprint: bytes
    fingerprint_version: int
    field_digests: bytes
    answer: Rejected | None = None

    @property
    def identity(self) -> tuple[int, int, str | None, str]:
        """What the key hash was made from, in the clear."""
        return self.scope, self.source, self.tenant, self.message_id


@dataclass(frozen=True, slots=True)
class Fresh:
    """Never settled: ours to handle."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Settled before with the same content. `answer` is the first one's refusal, if it was refused."""

    answer: Rejected | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Settled before with another content; `fields` differ."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unverified:
    """Settled before under a fingerprint version that this source does not know: taken for a duplicate, with a trace."""

    version: int


Verdict = Fresh | Duplicate | Conflict | Unverified


Under = Callable[[int], Print | None]
"""A message's fingerprint under a version, None if the source does not know that version."""


def compare(held: Held, incoming: Held, under: Under) -> Duplicate | Conflict | Unverified:
    """Return what a message is to the copy that holds its key: a duplicate, a conflict, or not to be proven."""
    if held.identity != incoming.identity:
        # Two keys with one hash. It must never pass for a duplicate.
        return Conflict(("idempotency key",))
    if (held.fingerprint_version, held.fingerprint) == (incoming.fingerprint_version, incoming.fingerprint):
        return Duplicate(held.answer)
    same_version = under(held.fingerprint_version)
    if same_version is None:
        return Unverified(held.fingerprint_version)
    if same_version.fingerprint == held.fingerprint:
        return Duplicate(held.answer)
    return Conflict(same_version.differing(held.field_digests))

"""What the inbox says about a message before its handler runs. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from consumer_idem.inbox.fingerprint import Print, differing
from consumer_idem.message import Position
from consumer_idem.outcome import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The copy that holds a key: its inbox row, or an earlier message of the same batch."""

    attempt_id: UUID
    scope: int
    source: int
    tenant: str | None
    message_id: str
    topic: int
    position: Position
    status: str
    fingerprint: bytes
    fingerprint_version: int
    field_digests: bytes
    answer: Rejected | None


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

"""What a source makes of a message: a Reading, or Unreadable with the reason. Pure."""

from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID

from consumer_idem.outcome import Reason

P = TypeVar("P")


class Reading(NamedTuple, Generic[P]):
    """A message that has an idempotency key and a fingerprint.

    A named tuple, since one is made for every message and a frozen dataclass of this size costs a microsecond.
    """

    payload: P
    source: str
    message_id: str
    """Readable, one to one with the id, and without anything that PostgreSQL's text refuses."""
    tenant: str | None
    """Like `message_id`; None if the source declares none."""
    key_hash: UUID
    occurred_at: datetime | None
    """The time inside the id, with a zone; None unless the source declares one."""
    fingerprint: bytes
    fingerprint_version: int
    field_digests: bytes
    kept: dict[str, Any] | None
    """The values of the fields in `keep=`, as JSON; None unless the fingerprint keeps any."""


class Unreadable(NamedTuple):
    """A message for quarantine: it cannot be decoded, identified or fingerprinted. `error` quotes no value of the payload.

    The key is there as far as it could be told, so that the entry is found by it; it was not claimed.
    """

    reason: Reason
    error: str
    source: str
    message_id: str | None = None
    tenant: str | None = None
    key_hash: UUID | None = None


class CannotRead(ValueError):
    """Raised inside a source and turned into Unreadable; never reaches a user."""

    reason: ClassVar[Reason]


class Undecodable(CannotRead):
    """The value is not what the model describes, or has no canonical form."""

    reason = Reason.UNDECODABLE


class Unidentifiable(CannotRead):
    """There is no message id, or none that can be trusted."""

    reason = Reason.UNIDENTIFIABLE


class TombstoneRefused(CannotRead):
    """The value is null, and the source does not say what that means."""

    reason = Reason.TOMBSTONE

"""What became of a message. Every message ends in exactly one of these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from consumer_idem.errors import ConsumerIdemError


class Reason(StrEnum):
    """Why a message is in quarantine."""

    CONFLICT = "conflict"
    """Its key is settled with another content."""
    UNIDENTIFIABLE = "unidentifiable"
    """It has no message id, or none that can be trusted."""
    UNDECODABLE = "undecodable"
    """It is not what the source's model describes, or Kafka's client cannot read it."""
    TOMBSTONE = "tombstone"
    """Its value is null, and the source does not say what that means."""
    UNROUTED = "unrouted"
    """No handler takes its topic and event type."""
    ATTEMPTS_USED_UP = "attempts-used-up"
    """Its handler failed as often as the policy allows, or with an error that no attempt can mend."""
    CRASHED = "crashed"
    """Its handler ended the process as often as the policy allows."""
    UNVERIFIED = "unverified"
    """A copy of it was settled under a fingerprint version that the source does not know: skipped, and the entry is closed."""
    NOT_YET = "not-yet"
    """Its handler cannot take it yet; the worker releases it by itself after a while."""


class Rejected(ConsumerIdemError):
    """The handler's own business refusal; remembered, so that a repeat gets the same refusal.

    `return Rejected(…)` keeps what the handler wrote, `raise Rejected(…)` undoes it; both keep the claim.
    `code` is a short stable name; `detail` must be JSON.
    """

    def __init__(self, code: str, detail: Mapping[str, Any] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rejected) and (self.code, self.detail) == (other.code, other.detail)

    def __hash__(self) -> int:
        return hash(self.code)


@dataclass(frozen=True, slots=True)
class Applied:
    """The handler's effect is committed."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A duplicate: settled before and not applied again. `answer` is the first one's refusal, if it was refused."""

    answer: Rejected | None = None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Kept with its evidence for a person to decide; its offset passes. `fields` are those that differ in a conflict.

    `release_after`: the worker releases it by itself after so long.
    """

    reason: Reason
    error: str = ""
    fields: tuple[str, ...] = ()
    release_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Not settled: to be handled again after `after`. Its offset must not be committed, nor any behind it."""

    after: timedelta = timedelta(0)


Outcome = Applied | Rejected | Skipped | Quarantined | Retry
"""What `app.process` returns for each message. All but Retry are final; match them with `match`."""


def settled_count(outcomes: Sequence[Outcome]) -> int:
    """Return how many messages a transaction, or a run of them, has settled: only its last one may be a Retry, which is not."""
    return len(outcomes) - 1 if outcomes and isinstance(outcomes[-1], Retry) else len(outcomes)

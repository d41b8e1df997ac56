"""What can come of one transaction over some messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from consumer_idem.message import Position
from consumer_idem.outcome import Outcome, Retry
from consumer_idem.transaction.synchronizer import Synchronizer


@dataclass(frozen=True, slots=True)
class Settled:
    """Committed. As many outcomes as messages, or fewer: then the last is Retry, and what stands behind it was not reached."""

    outcomes: Sequence[Outcome]


@dataclass(frozen=True, slots=True)
class Blamed:
    """Rolled back: the message at `index` failed after it had sent statements. `retry` is set if it asked for one,
    `final` if its policy says that no further attempt can help.
    """

    index: int
    error: str
    retry: Retry | None
    final: bool


@dataclass(frozen=True, slots=True)
class Broken:
    """Rolled back, and nobody knows which message is to blame."""

    error: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Rolled back, and no message is to blame: the database or the way to it is."""

    error: str


@dataclass(frozen=True, slots=True)
class SealRefused:
    """Rolled back: the seal found no row. Ask the seal to explain."""


@dataclass(slots=True, eq=False)
class InDoubt:
    """COMMIT got no clear answer. Claims that were left standing (`standing`) will tell once the messages run again.

    `releasable`: those of them that a release from quarantine may have replaced since. `outcomes`: of the messages that have not
    run again yet. `proven`: a transaction that found it committed is committed itself.
    """

    attempt: UUID
    standing: frozenset[UUID]
    releasable: frozenset[UUID]
    outcomes: dict[Position, Outcome]
    synchronizer: Synchronizer
    proven: bool = False


Result = Settled | Blamed | Broken | Unavailable | SealRefused | InDoubt

Explained = Settled | Blamed | Broken | Unavailable | InDoubt
"""A result after a refused seal has been explained: what is neither fenced nor rewound is a broken transaction."""

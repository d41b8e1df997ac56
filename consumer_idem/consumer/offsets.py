"""Where a lane starts to read. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from consumer_idem.ports import Bounds

FirstStart = Literal["earliest", "latest"] | datetime
"""Where a partition starts that neither Kafka nor the database knows."""


@dataclass(frozen=True, slots=True)
class Start:
    """The offset to read first. `lost` is the range that Kafka has deleted before we read it."""

    offset: int
    lost: range | None = None


@dataclass(frozen=True, slots=True)
class NewIncarnation:
    """The log is not the one that the progress was made on: deleted and made again, or truncated."""


def start_position(
    *, next_offset: int | None, committed: int | None, bounds: Bounds, first_start: int, topic_known: bool, another_log: bool = False
) -> Start | NewIncarnation:
    """Return where to start: the lower of the database's progress and Kafka's committed offset.

    Only one of them there: that one; but a committed offset without progress, in a group that has progress for the
    topic, says that the database lost a row: from the earliest. Neither: `first_start`. `another_log`: something else has told so.
    """
    if another_log or (next_offset is not None and bounds.end < next_offset):
        return NewIncarnation()
    wanted = _wanted(next_offset, committed, bounds, first_start, topic_known)
    if wanted < bounds.earliest:
        expected = wanted > 0 or next_offset is not None or committed is not None
        return Start(bounds.earliest, range(wanted, bounds.earliest) if expected else None)
    return Start(wanted)


def _wanted(next_offset: int | None, committed: int | None, bounds: Bounds, first_start: int, topic_known: bool) -> int:
    if next_offset is not None:
        return next_offset if committed is None else min(next_offset, committed)
    if committed is None:
        return first_start
    if topic_known or committed > bounds.end:
        return bounds.earliest
    return committed

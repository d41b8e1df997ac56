"""Progress: per group, topic and partition the next offset, moved in the same transaction as the effect; and who may."""

from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from consumer_idem.errors import LogCut
from consumer_idem.message import Mark
from consumer_idem.ports import Connection, Row
from consumer_idem.sql import Queries


@dataclass(frozen=True, slots=True)
class Slot:
    """Which progress is meant: a group's on one partition of one incarnation of a topic (its small integer)."""

    group: str
    topic: int
    partition: int


class Span(NamedTuple):
    """The offsets from `start` up to `stop` that a transaction settles. `leader_epoch` is the last message's, None if not known."""

    start: int
    stop: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """What was found when the slot was taken over. `previous_owner` is None after a clean stop.

    `mark` is the last settled message whose leader epoch is known. Builds that know no marks leave it where it was.
    """

    epoch: int
    next_offset: int
    previous_owner: UUID | None
    previous_limit: int
    mark: Mark | None = None


class Progress:
    """Every method is one statement inside the caller's transaction."""

    def __init__(self, schema: str) -> None:
        self._sql = Queries("inbox", schema)

    async def take(self, connection: Connection, slot: Slot, owner: UUID, batch_limit: int) -> Taken | None:
        """Take the slot with a new epoch, which fences every earlier owner; None if it has no row yet."""
        rows = await connection.fetch(self._sql["take_progress"], slot.group, slot.topic, slot.partition, owner, batch_limit)
        if not rows:
            return None
        found = dict(rows[0])
        offset, epoch = found.pop("mark_offset"), found.pop("mark_epoch")
        return Taken(**found, mark=None if offset is None else Mark(offset, epoch))

    async def begin(self, connection: Connection, slot: Slot, offset: int, owner: UUID, batch_limit: int) -> bool:
        """Make the slot's row at `offset`; return False if somebody else made it first."""
        args = (slot.group, slot.topic, slot.partition, offset, owner, batch_limit)
        return bool(await connection.fetch(self._sql["begin_progress"], *args))

    async def skip(self, connection: Connection, slot: Slot, epoch: int, offset: int) -> None:
        """Move the progress to `offset`, over messages that are in Kafka no more."""
        await connection.execute(self._sql["skip_progress"], slot.group, slot.topic, slot.partition, epoch, offset)

    async def go_back(self, connection: Connection, slot: Slot, taken: Taken, cut: LogCut) -> Taken:
        """Move the progress back to where the log was cut; return what is to be found then."""
        mark = cut.mark or (None, None)
        await connection.execute(self._sql["go_back"], slot.group, slot.topic, slot.partition, taken.epoch, cut.offset, *mark)
        return replace(taken, next_offset=min(taken.next_offset, cut.offset), mark=cut.mark)

    async def topic_known(self, connection: Connection, group: str, topic: str) -> bool:
        """Tell whether the group has progress on any partition of any incarnation of the topic."""
        return bool((await connection.fetch(self._sql["topic_known"], group, topic))[0]["known"])

    async def seal(self, connection: Connection, slot: Slot, fence: tuple[int, UUID], span: Span, attempt: UUID) -> bool:
        """Move the progress over `span`; False if the transaction is not ours any more, or the slot is not.

        `fence` is the epoch and the owner that must still hold.
        """
        args = (slot.group, slot.topic, slot.partition, *fence, span.start, span.stop, str(attempt), span.leader_epoch)
        return bool(await connection.fetch(self._sql["seal"], *args))

    async def read(self, connection: Connection, slot: Slot) -> Row | None:
        """Return epoch, owner and next_offset, None if there is no row."""
        rows = await connection.fetch(self._sql["read_progress"], slot.group, slot.topic, slot.partition)
        return rows[0] if rows else None

    async def release(self, connection: Connection, slot: Slot, epoch: int, owner: UUID) -> None:
        """Clear the owner after a clean stop, so that the next one need not search for a message that kills."""
        await connection.execute(self._sql["release_progress"], slot.group, slot.topic, slot.partition, epoch, owner)

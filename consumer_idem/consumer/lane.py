"""A lane: one partition's loop. Fetch, one transaction, watermark."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from consumer_idem import failpoint, telemetry
from consumer_idem.consumer.offsets import FirstStart, NewIncarnation, Start, start_position
from consumer_idem.consumer.processor import Course, Processor
from consumer_idem.consumer.seal import ProgressSeal
from consumer_idem.consumer.trail import Trail
from consumer_idem.errors import (
    CommitUnknown,
    DatabaseFailure,
    DatabaseRewound,
    Fenced,
    LogCut,
    OffsetOutOfRange,
    OrderBroken,
    PartitionLost,
    Unreadable,
)
from consumer_idem.inbox.progress import Progress, Slot, Taken
from consumer_idem.inbox.topics import Topics
from consumer_idem.message import Message, Partition
from consumer_idem.outcome import Quarantined, Reason, Retry
from consumer_idem.ports import Bounds, Connection, Database, Subscriber
from consumer_idem.transaction.short import short

log = logging.getLogger(__name__)

_LOOK_BACK = 5.0
"""Seconds between two looks of an idle lane at its progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    """What all lanes of a worker share. `owner` is new with every start of the process."""

    group: str
    owner: UUID
    schema: str
    batch_size: int
    first_start: FirstStart
    paused: Callable[[], Awaitable[bool]]
    """Whether to poll nothing now: the outbox is too full."""
    stay_registered: Callable[[Connection], Awaitable[None]]
    poll_timeout: timedelta = timedelta(seconds=1)


class Lane:
    """Reads one partition and settles its messages in order, one transaction at a time.

    Nothing is fetched before the slot is taken: a new epoch fences whoever had the partition before. `ended`: the partition is
    not ours any more. `waiting`: on purpose, for a retry or for the outbox to drain.
    """

    def __init__(
        self, partition: Partition, subscriber: Subscriber, database: Database, processor: Processor, settings: LaneSettings
    ) -> None:
        self.partition = partition
        self._subscriber = subscriber
        self._trail = Trail(subscriber, partition)
        self._database = database
        self._processor = processor
        self._settings = settings
        self._progress = Progress(settings.schema)
        self._topics = Topics(settings.schema)
        self._stopping = asyncio.Event()
        self._seal: ProgressSeal | None = None
        self._course: Course | None = None
        self._backlog: Sequence[Message] = ()
        self._in_doubt: tuple[int, int] | None = None
        self._known = False
        self._cut: LogCut | None = None
        self._look_back_at = 0.0
        self.ended = False
        self.waiting = False

    @property
    def watermark(self) -> int | None:
        """The offset below which every message is settled; None until the slot is taken."""
        return None if self._seal is None else self._seal.watermark

    @property
    def idle(self) -> bool:
        """Whether all that was polled is settled."""
        return not self._backlog

    def stop(self) -> None:
        """Finish the transaction that is open, begin no other."""
        self._stopping.set()

    async def run_once(self) -> int:
        """Settle some messages; return how many were looked at. Sets `ended` when the partition is not ours any more."""
        try:
            if self._seal is None:
                await self._take()
            return await self._turn()
        except PartitionLost:
            self.ended = True
        except DatabaseRewound:
            telemetry.lane("rewound", self.partition)
            log.error("the database is older than this worker saw; seeking back", extra={"partition": self.partition})
            await self._take()
        except LogCut as cut:
            telemetry.lane("truncated", self.partition)
            log.error("log was cut off and has grown again; going back to the cut", extra={"partition": self.partition, "cut": cut.offset})
            self._cut = cut
            await self._take()
        except (OffsetOutOfRange, OrderBroken) as error:
            log.error("looking for the start again", extra={"partition": self.partition, "error": str(error)})
            await self._take()
        except Fenced:
            await self._ask_whether_still_ours()
        return 0

    async def release(self) -> None:
        """Say that this lane stopped cleanly, so that its successor need not search for a message that kills."""
        if self._seal is not None:
            async with short(self._database, self._settings.schema) as connection:
                await self._progress.release(connection, self._seal.lane_slot, self._seal.epoch, self._seal.owner)

    # One turn

    async def _turn(self) -> int:
        assert self._course is not None
        assert self._seal is not None
        try:
            messages = self._backlog or await self._poll()
        except Unreadable as unreadable:
            return await self._pass_over(unreadable)
        if not messages:
            await self._look_back()
            return 0
        await failpoint.reached("poll.after")
        self._backlog = messages
        try:
            outcomes = await self._processor.process(self._course, self._next(messages))
        finally:
            # Behind an error, too: what was settled before it is not settled again.
            self._backlog = [message for message in messages if message.offset >= self._seal.watermark]
        if outcomes and isinstance(outcomes[-1], Retry):
            await self._wait_for_retry(outcomes[-1])
        return len(messages)

    async def _poll(self) -> Sequence[Message]:
        if await self._settings.paused():
            await self._pause(self._settings.poll_timeout)
            return ()
        poll = asyncio.ensure_future(self._trail.poll(self._settings.batch_size, self._settings.poll_timeout))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({poll, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return poll.result() if poll.done() else ()
        finally:
            stopping.cancel()
            poll.cancel()

    async def _look_back(self) -> None:
        """Look for a database that went back: without a message there is no seal that would notice, and what it lost would stay lost."""
        assert self._seal is not None
        now = time.monotonic()
        if now >= self._look_back_at:
            self._look_back_at = now + _LOOK_BACK
            with contextlib.suppress(DatabaseFailure, CommitUnknown):
                await self._seal.explain(self._database)

    async def _pass_over(self, unreadable: Unreadable) -> int:
        """Quarantine bytes that the client could not make messages of, and go on behind them."""
        assert self._course is not None
        telemetry.lane("unreadable", self.partition)
        topic, number = self.partition
        message = Message(topic=topic, partition=number, offset=unreadable.next_offset - 1, value=unreadable.raw)
        if not await self._processor.quarantine(self._course, message, Quarantined(Reason.UNDECODABLE, str(unreadable))):
            return 0
        await self._trail.skip(unreadable.next_offset)
        return 1

    def _next(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages for this turn: those that a dead process may have died of are not mixed with others."""
        assert self._course is not None
        if self._in_doubt is None:
            return messages
        first, limit = self._in_doubt
        before = [message for message in messages if message.offset < first]
        if before:
            return before
        self._course.plan.in_doubt, self._in_doubt = limit, None
        return messages

    async def _wait_for_retry(self, retry: Retry) -> None:
        assert self._course is not None
        log.info("handler asked for a retry, the partition waits", extra={"partition": self.partition, "after": str(retry.after)})
        self._course.plan.one_by_one(1)
        await self._pause(retry.after)

    async def _pause(self, duration: timedelta) -> None:
        self.waiting = True
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), duration.total_seconds())
        finally:
            self.waiting = False

    # Taking the partition

    async def _ask_whether_still_ours(self) -> None:
        """Being fenced is a question: another worker may have had the partition between two of our own assignments."""
        telemetry.lane("fenced", self.partition)
        if await self._subscriber.holds(self.partition):
            log.warning("fenced, but the group still gives us the partition; taking it again", extra={"partition": self.partition})
            await self._take()
        else:
            log.warning("fenced, the partition belongs to another worker", extra={"partition": self.partition})
            self.ended = True

    async def _take(self) -> None:
        """Take the slot under a new epoch and seek to the start."""
        self._seal, self._course, self._backlog = None, None, ()
        topic, number = self.partition
        committed = await self._subscriber.committed(self.partition)
        bounds = await self._subscriber.bounds(self.partition)
        first_start = await self._first_start(bounds)
        kafka_id = await self._subscriber.topic_id(topic)
        settings = self._settings
        async with short(self._database, settings.schema) as connection:
            await settings.stay_registered(connection)
            # What this lane has had before, the database may have lost: also if it is only the second try that comes through.
            topic_known = self._known or await self._progress.topic_known(connection, settings.group, topic)
            slot = Slot(settings.group, await self._topics.current(connection, topic, kafka_id), number)
            taken = await self._progress.take(connection, slot, settings.owner, settings.batch_size)
            if taken is not None and self._cut is not None:
                taken = await self._progress.go_back(connection, slot, taken, self._cut)
            start = start_position(
                next_offset=None if taken is None else taken.next_offset,
                committed=committed,
                bounds=bounds,
                first_start=first_start,
                topic_known=topic_known,
                # Without its id, this may be another topic of that name, of which nothing was read.
                another_log=self._cut is not None and kafka_id is None,
            )
            if isinstance(start, NewIncarnation):
                telemetry.lane("made-anew", self.partition)
                log.error("topic was made anew or truncated; reading it from the start", extra={"partition": self.partition})
                slot = Slot(settings.group, await self._topics.renew(connection, topic, slot.topic, kafka_id), number)
                taken = await self._progress.take(connection, slot, settings.owner, settings.batch_size)
                start = Start(bounds.earliest)
            epoch = await self._enter(connection, slot, start, taken)
        passed = 0 if taken is None else taken.next_offset
        self._seal = ProgressSeal(self._progress, slot, epoch, settings.owner, start.offset, settings.schema, passed)
        self._course, self._known = Course(self._seal, stopping=self._stopping), True
        self._look_back_at = time.monotonic() + _LOOK_BACK
        self._in_doubt, self._cut = self._doubtful(taken), None
        await self._trail.start(start.offset, None if taken is None else taken.mark, bounds.earliest)
        self._tell(start, epoch)

    async def _enter(self, connection: Connection, slot: Slot, start: Start, taken: Taken | None) -> int:
        """Return the epoch under which the slot is ours, with its progress at the start or behind it."""
        settings = self._settings
        if taken is None:
            if await self._progress.begin(connection, slot, start.offset, settings.owner, settings.batch_size):
                return 1
            taken = await self._progress.take(connection, slot, settings.owner, settings.batch_size)
            assert taken is not None
        if start.offset > taken.next_offset:
            # Kafka has deleted what lies between. A progress that stayed before it would look like a database that went back.
            await self._progress.skip(connection, slot, taken.epoch, start.offset)
        return taken.epoch

    def _doubtful(self, taken: Taken | None) -> tuple[int, int] | None:
        if taken is None or taken.previous_owner in (None, self._settings.owner):
            return None
        return taken.next_offset, taken.previous_limit

    async def _first_start(self, bounds: Bounds) -> int:
        match self._settings.first_start:
            case "earliest":
                return bounds.earliest
            case "latest":
                return bounds.end
            case time:
                offset = await self._subscriber.offset_at(self.partition, time)
                return bounds.end if offset is None else offset

    def _tell(self, start: Start, epoch: int) -> None:
        where = {"partition": self.partition, "offset": start.offset, "epoch": epoch}
        log.info("lane starts", extra=where)
        telemetry.lane("taken", self.partition)
        if start.lost:
            telemetry.lane("lost-range", self.partition)
            lost = f"{start.lost.start} to {start.lost.stop - 1}"
            log.error("Kafka has deleted messages before they were read", extra={**where, "lost_offsets": lost})

"""What a lane reads: in order, and from the log that it has read before.

A log that lost its end in an unclean election and has grown again looks whole: its offsets go on, and what was written in the
place of what is lost would never be read. Kafka keeps with every message the epoch of the leader that wrote it, and along a log
that epoch never falls. So as long as no message up to the last settled one has a higher epoch than that one had, nothing was written
behind the lane's back. To make sure, that message is read once more: at the start, whenever a higher epoch comes (KIP-320), and now
and then while nothing comes, since the log may have grown to just where it was.
"""

import time
from collections.abc import Sequence
from datetime import timedelta

from consumer_idem.errors import KafkaUnavailable, LogCut, OffsetOutOfRange, OrderBroken, Unreadable
from consumer_idem.message import Mark, Message, Partition
from consumer_idem.ports import Subscriber

_UNKNOWN = -1
_QUIET = 60.0
"""Seconds without a message after which the last one is looked at again."""
_A_MOMENT = timedelta(milliseconds=500)
_PATIENCE = 10.0


class Trail:
    """One partition's messages from `start` on. What a poll returned must be settled before the next poll.

    `_trusted` is an epoch up to which the log is known to hold what was settled; `_asked` one up to which it is being found out.
    `_place` is where the client must be put first: nothing that goes wrong on the way may lose it.
    """

    def __init__(self, subscriber: Subscriber, partition: Partition) -> None:
        self._subscriber = subscriber
        self._partition = partition
        self._next = 0
        self._mark: Mark | None = None
        self._trusted = _UNKNOWN
        self._asked: int | None = None
        self._place: int | None = None
        self._quiet_since = time.monotonic()

    async def start(self, offset: int, mark: Mark | None, earliest: int) -> None:
        """Let the next poll return what lies from `offset` on, if the log still holds the `mark`."""
        self._next, self._mark, self._trusted, self._asked = offset, mark, _UNKNOWN, None
        self._place = offset
        if mark is not None:
            self._ask(mark, mark.leader_epoch)
            self._place = max(self._place, earliest)
        await self._put()

    async def skip(self, offset: int) -> None:
        """Let the next poll start at `offset`."""
        self._next = self._place = offset
        await self._put()

    async def poll(self, limit: int, timeout: timedelta) -> Sequence[Message]:
        """Return the next messages, as Subscriber.poll does; raise LogCut if the log has lost what was settled, OrderBroken."""
        messages = await self._fetch(limit, timeout)
        if not messages:
            self._mind_the_quiet()
        elif self._asked is not None or _epoch(messages[-1]) > self._trusted:
            messages = await self._checked(messages)
        if messages:
            _assert_order(messages, self._next)
            last = messages[-1]
            self._next, self._quiet_since = last.offset + 1, time.monotonic()
            self._mark = _mark(last) or self._mark
        return messages

    def _mind_the_quiet(self) -> None:
        now = time.monotonic()
        stands = self._asked is None and self._place is None
        if stands and self._mark is not None and now - self._quiet_since >= _QUIET:
            self._quiet_since = now
            self._ask(self._mark, self._trusted)

    async def _put(self) -> None:
        if self._place is not None:
            await self._subscriber.seek(self._partition, self._place)
            self._place = None

    async def _fetch(self, limit: int, timeout: timedelta) -> Sequence[Message]:
        await self._put()
        try:
            return await self._subscriber.poll(self._partition, limit, timeout)
        except OffsetOutOfRange:
            if self._asked is None or self._mark is None:
                raise
            # Only where the mark is deleted is there less to compare with: a broker that lags behind says the same.
            earliest = (await self._subscriber.bounds(self._partition)).earliest
            if not self._mark.offset < earliest <= self._next:
                raise
            self._place = earliest
        except Unreadable as damage:
            if self._asked is None or damage.next_offset > self._next:
                raise
            # It was settled, or stands in the place of what was: what comes behind it tells.
            self._place = damage.next_offset
        return ()

    def _ask(self, mark: Mark, epoch: int) -> None:
        self._asked = epoch
        self._place = min(mark.offset, self._next)

    def _trust(self, epoch: int) -> None:
        self._trusted, self._asked = epoch, None

    async def _checked(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return those that may be settled now; none if the client has to be put elsewhere first."""
        newest = _epoch(messages[-1])
        if self._mark is None:
            self._mark = next(filter(None, map(_mark, messages)))
            self._trust(self._mark.leader_epoch)
        if self._asked is not None:
            if _epoch(messages[0]) > self._mark.leader_epoch:
                await self._look_for_cut(self._mark, messages[0])
                messages = ()
            self._trust(self._asked)
            messages = [message for message in messages if message.offset >= self._next]
            if not messages:
                self._place = self._next
                return ()
        if newest > self._trusted:
            self._ask(self._mark, newest)
            return ()
        return messages

    async def _look_for_cut(self, mark: Mark, newer: Message) -> None:
        """Raise LogCut if a message up to the mark has a higher epoch; return if the mark is gone, and `newer` the first that has."""
        self._place, older = min(mark.offset, self._next), None
        low, high = (await self._subscriber.bounds(self._partition)).earliest, min(newer.offset, mark.offset + 1)
        while low < high:
            middle = (low + high) // 2
            message = await self._message_at(middle)
            if _epoch(message) > mark.leader_epoch:
                newer, high = message, middle
            else:
                low, older = message.offset + 1, _mark(message)
        if newer.offset <= mark.offset:
            # From where nothing older was found: what lies there and cannot be read is as new.
            raise LogCut(min(low, newer.offset), older)

    async def _message_at(self, offset: int) -> Message:
        """Return the first message that can be read from `offset` on."""
        await self._subscriber.seek(self._partition, offset)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                messages = await self._subscriber.poll(self._partition, 1, _A_MOMENT)
            except Unreadable as damage:
                await self._subscriber.seek(self._partition, damage.next_offset)
                continue
            if messages:
                return messages[0]
        raise KafkaUnavailable


def _epoch(message: Message) -> int:
    return _UNKNOWN if message.leader_epoch is None else message.leader_epoch


def _mark(message: Message) -> Mark | None:
    return None if message.leader_epoch is None else Mark(message.offset, message.leader_epoch)


def _assert_order(messages: Sequence[Message], start: int) -> None:
    """A transaction holds every message delivered from its start on: a seal that jumps over one would lose it."""
    previous = start - 1
    for message in messages:
        if message.offset <= previous:
            raise OrderBroken(f"Offset {message.offset} was delivered after {previous}.")
        previous = message.offset

"""The records of one topic that the relay has read. Pure: it decides what is sent next, so that no record overtakes its key.

A lane has one flight at a time: what was handed to the publisher and is not answered yet. What fails goes back to the front.
"""

import random
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from consumer_idem.outbox.entry import Chain, Entry, Unfit
from consumer_idem.ports import Delivered, Delivery, FailureKind, NotDelivered


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delay before what failed is tried again: doubled each time from `first` up to `most`, with full jitter."""

    first: timedelta
    most: timedelta

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after the `failures`-th failure in a row."""
        most = min(self.most.total_seconds(), self.first.total_seconds() * 2.0 ** min(failures - 1, 32))
        return random.uniform(most / 2, most)


@dataclass(slots=True)
class Landing:
    """What became of a flight."""

    acknowledged: list[Entry] = field(default_factory=list)
    unfit: list[Unfit] = field(default_factory=list)
    failed: list[Entry] = field(default_factory=list)
    error: str = ""
    topic_error: str | None = None


class Lane:
    """The queue of one topic."""

    __slots__ = ("_backoff", "_failures", "_queue", "_retry_at", "_stuck", "_waiting", "bytes", "flight", "topic")

    def __init__(self, topic: str, backoff: Backoff) -> None:
        self.topic = topic
        self.flight: Sequence[Entry] = ()
        self.bytes = 0
        self._queue: deque[Entry] = deque()
        self._backoff = backoff
        self._stuck: set[Chain] = set()
        self._waiting = False
        self._failures = 0
        self._retry_at = 0.0

    def __len__(self) -> int:
        return len(self._queue) + len(self.flight)

    def __bool__(self) -> bool:
        return bool(self._queue or self.flight)

    @property
    def queued(self) -> int:
        """How many records are not in flight."""
        return len(self._queue)

    def entries(self) -> Iterable[Entry]:
        """Return everything it holds."""
        yield from self.flight
        yield from self._queue

    def admit(self, entry: Entry) -> None:
        """Put a record behind those that were read before it."""
        self._queue.append(entry)
        self.bytes += entry.size

    def keep(self, shards: Collection[int]) -> None:
        """Forget what is queued of all other shards; what is in flight stays until it is answered."""
        self._refill(entry for entry in self._queue if entry.shard in shards)

    def due_at(self) -> float | None:
        """Return when there is something to send, None if there is nothing or a flight is not answered yet."""
        if self.flight or not self._queue:
            return None
        return self._retry_at if self._waiting or len(self._queue) == self._stuck_count() else 0.0

    def take_off(self, limit: int, now: float) -> Sequence[Entry]:
        """Put up to `limit` records in flight and return them in order: none of a key that waits, and none past its key's first."""
        if self.flight or (self._waiting and now < self._retry_at):
            return ()
        if now >= self._retry_at:
            self._waiting = False
            self._stuck.clear()
        self.flight = self._take(limit)
        return self.flight

    def land(self, deliveries: Sequence[Delivery], now: float) -> Landing:
        """Take the answers to the flight; what failed is first again, and a record that is unfit takes its key out of memory."""
        landing = _sorted(self.flight, deliveries)
        self.bytes -= sum(entry.size for entry in self.flight)
        self.flight = ()
        if landing.topic_error is not None:
            self._refill(())
            self._stuck.clear()
            return landing
        if landing.failed or landing.unfit:
            blocked = {unfit.entry.record.key for unfit in landing.unfit} - {None}
            self._refill(entry for entry in (*landing.failed, *self._queue) if entry.record.key not in blocked)
        self._wait(landing, now)
        return landing

    def _take(self, limit: int) -> Sequence[Entry]:
        if not self._stuck:
            return [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]
        taken: list[Entry] = []
        left: deque[Entry] = deque()
        for entry in self._queue:
            (left if entry.chain in self._stuck or len(taken) == limit else taken).append(entry)
        self._queue = left
        return taken

    def _refill(self, entries: Iterable[Entry]) -> None:
        self._queue = deque(entries)
        self.bytes = sum(entry.size for entry in self.entries())

    def _wait(self, landing: Landing, now: float) -> None:
        if not landing.failed:
            self._failures = self._failures if self._stuck else 0
            return
        if landing.unfit:
            # They failed because the unfit one stood before them, and may go at once.
            return
        self._failures += 1
        self._retry_at = now + self._backoff.delay(self._failures)
        self._stuck.update(entry.chain for entry in landing.failed)
        self._waiting = not landing.acknowledged

    def _stuck_count(self) -> int:
        return sum(entry.chain in self._stuck for entry in self._queue) if self._stuck else 0


def _sorted(flight: Sequence[Entry], deliveries: Sequence[Delivery]) -> Landing:
    landing = Landing()
    if all(type(delivery) is Delivered for delivery in deliveries):
        # The common case, without a look at each.
        landing.acknowledged.extend(flight)
        return landing
    for entry, delivery in zip(flight, deliveries, strict=True):
        match delivery:
            case Delivered():
                landing.acknowledged.append(entry)
            case NotDelivered(FailureKind.RECORD, error):
                landing.unfit.append(Unfit(entry, error))
            case NotDelivered(FailureKind.TOPIC, error):
                landing.topic_error = error
            case NotDelivered(FailureKind.RETRIABLE, error):
                landing.failed.append(entry)
                landing.error = error
    return landing

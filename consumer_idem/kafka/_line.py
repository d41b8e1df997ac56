"""The way to one Kafka partition: one batch under way, and nothing is sent behind a record that was not delivered.

Shared by the publishers. What is sent, and how, is the client's; what may be sent next is decided here.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from consumer_idem.message import OutboxRecord
from consumer_idem.ports import Delivered, Delivery, FailureKind, NotDelivered

BATCH_BYTES = 700_000
"""Below the broker's default of 1,048,588 with room for what a client adds. A single record may be larger."""

_BATCH_RECORDS = 5_000
_LEAST_BYTES = 10_000
_RECORD_OVERHEAD = 40
_HEADER_OVERHEAD = 8

Answers = Sequence[int | NotDelivered]
"""Per record of a batch, its offset, or why it has none."""

Send = Callable[[Sequence[OutboxRecord]], Awaitable[Answers]]


@dataclass(slots=True, kw_only=True)
class _UnderWay:
    ids: list[UUID]
    answers: asyncio.Future[Answers]


class Line:
    """Sends records to one Kafka partition in order. Callers take turns.

    A batch that is not answered in time stays under way: the client may still deliver it. Who comes with the same records
    waits for that answer instead of sending them twice; who comes with others waits for its end.
    """

    def __init__(self, partition: int, send: Send) -> None:
        self._partition = partition
        self._send = send
        self._turn = asyncio.Lock()
        self._under_way: _UnderWay | None = None
        self._batch_bytes = BATCH_BYTES

    async def deliver(self, records: Sequence[OutboxRecord], deadline: float) -> list[Delivery]:
        """Return one delivery per record; those not answered by `deadline`, on the monotonic clock, are RETRIABLE."""
        deliveries: list[Delivery] = []
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                async with self._turn:
                    await self._deliver(records, deliveries)
        except TimeoutError:
            deliveries.append(NotDelivered(FailureKind.RETRIABLE, "Kafka has not answered in time"))
        return _behind(deliveries, len(records))

    async def _deliver(self, records: Sequence[OutboxRecord], deliveries: list[Delivery]) -> None:
        batches = deque(self._batches(await self._join_under_way(records, deliveries)))
        while batches and not _stopped(deliveries):
            batch = batches.popleft()
            answers = await self._send_one(batch)
            if len(batch) > 1 and _refused(answers):
                self._narrow(batch, answers)
                # Nothing of the batch was written. The unfit one is found by halves; those before it are delivered.
                batches.extendleft((batch[len(batch) // 2 :], batch[: len(batch) // 2]))
                continue
            self._note(answers, deliveries)

    async def _join_under_way(self, records: Sequence[OutboxRecord], deliveries: list[Delivery]) -> Sequence[OutboxRecord]:
        before = self._under_way
        if before is None:
            return records
        answers = await self._answers(before)
        count = len(before.ids)
        if [record.id for record in records[:count]] != before.ids or any(isinstance(answer, NotDelivered) for answer in answers):
            return records
        self._note(answers, deliveries)
        return records[count:]

    async def _send_one(self, batch: Sequence[OutboxRecord]) -> Answers:
        self._under_way = _UnderWay(ids=[record.id for record in batch], answers=asyncio.ensure_future(self._send(batch)))
        return await self._answers(self._under_way)

    async def _answers(self, under_way: _UnderWay) -> Answers:
        try:
            return await asyncio.shield(under_way.answers)
        finally:
            if under_way.answers.done():
                self._under_way = None

    def _note(self, answers: Answers, deliveries: list[Delivery]) -> None:
        deliveries += [answer if isinstance(answer, NotDelivered) else Delivered(self._partition, answer) for answer in answers]

    def _narrow(self, batch: Sequence[OutboxRecord], answers: Answers) -> None:
        """Keep to smaller batches from now on: the topic's own limit may be below ours."""
        if any(isinstance(answer, TooLarge) for answer in answers):
            self._batch_bytes = max(_LEAST_BYTES, sum(map(size, batch)) // 2)

    def _batches(self, records: Sequence[OutboxRecord]) -> Iterator[Sequence[OutboxRecord]]:
        start = taken = 0
        for at, record in enumerate(records):
            weight = size(record)
            if at > start and (taken + weight > self._batch_bytes or at - start == _BATCH_RECORDS):
                yield records[start:at]
                start, taken = at, 0
            taken += weight
        if start < len(records):
            yield records[start:]


@dataclass(frozen=True, slots=True)
class TooLarge(NotDelivered):
    """The broker found the batch, or the one record in it, larger than the topic allows."""


def size(record: OutboxRecord) -> int:
    """Return at most how many bytes a record takes in a batch, uncompressed."""
    total = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        # Four bytes at most for a character, as UTF-8 has it.
        total += _HEADER_OVERHEAD + len(name) * (1 if name.isascii() else 4) + len(value or b"")
    return total


def _stopped(deliveries: Sequence[Delivery]) -> bool:
    return any(isinstance(delivery, NotDelivered) for delivery in deliveries)


def _refused(answers: Answers) -> bool:
    """Tell whether nothing of a batch was written because of one record in it, or its size."""
    failures = [answer for answer in answers if isinstance(answer, NotDelivered)]
    return len(failures) == len(answers) and any(failure.kind is FailureKind.RECORD for failure in failures)


def _behind(deliveries: Sequence[Delivery], count: int) -> list[Delivery]:
    """Fill up to `count`: behind a record that was not delivered none counts as delivered."""
    first = next((at for at, delivery in enumerate(deliveries) if isinstance(delivery, NotDelivered)), count)
    if first == count:
        return list(deliveries)
    failed = deliveries[first]
    kind = FailureKind.TOPIC if isinstance(failed, NotDelivered) and failed.kind is FailureKind.TOPIC else FailureKind.RETRIABLE
    rest = NotDelivered(kind, "it stands behind a record that was not delivered")
    kept = [delivery if isinstance(delivery, NotDelivered) else rest for delivery in deliveries[first:]]
    return [*deliveries[:first], *kept, *[rest] * (count - len(deliveries))]

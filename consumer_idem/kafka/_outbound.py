"""Takes records apart by Kafka partition, sends them along their lines, and brings the answers back in input order.

Shared by the publishers: both put a key where the Java client would, whatever the client's own partitioner does.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from functools import partial

from consumer_idem.errors import KafkaRefused, KafkaUnavailable, TopicUnknown
from consumer_idem.kafka._line import Answers, Line
from consumer_idem.kafka._murmur2 import partition_of
from consumer_idem.message import OutboxRecord
from consumer_idem.ports import Delivery, FailureKind, NotDelivered

ANSWER_WITHIN = timedelta(seconds=30)
"""A publish ends after this at the latest. It may be called again at once: what is under way is not sent twice."""

_COUNT_AGE = 60.0
_LOOK_EVERY = 3.0

Send = Callable[[str, int, Sequence[OutboxRecord]], Awaitable[Answers]]
CountPartitions = Callable[[str], Awaitable[int]]


class Outbound:
    """`send` sends one batch to one partition; `count_partitions` asks Kafka, and raises our errors."""

    def __init__(self, send: Send, count_partitions: CountPartitions) -> None:
        self._send = send
        self._count_partitions = count_partitions
        self._counts: dict[str, tuple[int, float]] = {}
        self._lines: dict[tuple[str, int], Line] = {}

    async def publish(self, records: Sequence[OutboxRecord]) -> Sequence[Delivery]:
        """Send and wait for every answer, at most ANSWER_WITHIN."""
        deadline = time.monotonic() + ANSWER_WITHIN.total_seconds()
        by_topic: dict[str, list[int]] = defaultdict(list)
        for at, record in enumerate(records):
            by_topic[record.topic].append(at)
        deliveries: dict[int, Delivery] = {}
        topics = [self._publish_topic(topic, records, at, deadline, deliveries) for topic, at in by_topic.items()]
        await asyncio.gather(*topics)
        return [deliveries[at] for at in range(len(records))]

    async def _publish_topic(
        self, topic: str, records: Sequence[OutboxRecord], at: Sequence[int], deadline: float, deliveries: dict[int, Delivery]
    ) -> None:
        count = await self._count(topic)
        if isinstance(count, NotDelivered):
            deliveries.update(dict.fromkeys(at, count))
            return
        by_partition: dict[int, list[int]] = defaultdict(list)
        for index in at:
            by_partition[partition_of(records[index].key, records[index].id, count)].append(index)
        tasks = [
            asyncio.create_task(self._line(topic, number).deliver([records[index] for index in of], deadline))
            for number, of in by_partition.items()
        ]
        gone = await self._gone(topic, tasks)
        for of, task in zip(by_partition.values(), tasks, strict=True):
            answers = [gone] * len(of) if gone is not None else task.result()
            deliveries.update(zip(of, answers, strict=True))
            if any(isinstance(answer, NotDelivered) and answer.kind is FailureKind.TOPIC for answer in answers):
                self._counts.pop(topic, None)

    async def _gone(self, topic: str, tasks: Collection[asyncio.Task[list[Delivery]]]) -> NotDelivered | None:
        """Wait for the deliveries, but not for a topic that does not exist any more: clients wait for it to come back."""
        try:
            while (await asyncio.wait(tasks, timeout=_LOOK_EVERY))[1]:
                count = await self._count(topic, fresh=True)
                if isinstance(count, NotDelivered) and count.kind is FailureKind.TOPIC:
                    return count
        finally:
            for task in tasks:
                task.cancel()
        return None

    async def _count(self, topic: str, *, fresh: bool = False) -> int | NotDelivered:
        known, until = self._counts.get(topic, (0, 0.0))
        if time.monotonic() < until and not fresh:
            return known
        try:
            count = await self._count_partitions(topic)
        except (TopicUnknown, KafkaRefused) as error:
            self._counts.pop(topic, None)
            reason = "does not exist" if isinstance(error, TopicUnknown) else "may not be written by this client"
            return NotDelivered(FailureKind.TOPIC, f"Topic {topic!r} {reason}.")
        except KafkaUnavailable as error:
            return known or NotDelivered(FailureKind.RETRIABLE, str(error))
        self._counts[topic] = (count, time.monotonic() + _COUNT_AGE)
        return count

    def _line(self, topic: str, number: int) -> Line:
        line = self._lines.get((topic, number))
        if line is None:
            line = self._lines[topic, number] = Line(number, partial(self._send, topic, number))
        return line

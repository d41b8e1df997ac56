"""Commits and committed offsets, on the consumer's thread; the answers go to futures of the event loop."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer_idem.message import Partition

Offsets = tuple[tuple[str, int, int], ...]
"""Topic, partition and offset of each, sorted."""

_ASK_FOR = 0.3
_CLOSED = KafkaException(KafkaError(KafkaError._DESTROY, "the consumer is closed"))
_T = TypeVar("_T")


class Commits:
    """Remembers which commits have no answer yet. Every method but `__init__` runs on the consumer's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._unanswered: dict[Offsets, deque[asyncio.Future[None]]] = defaultdict(deque)
        self.member_id = ""
        """Who we were when the group last gave us something."""

    def commit(self, consumer: Consumer, offsets: Offsets, done: "asyncio.Future[None]", *, asynchronous: bool) -> None:
        """Send a commit. The answer to an asynchronous one comes with a later poll; else the thread waits for it."""
        partitions = [TopicPartition(*each) for each in offsets]
        try:
            # Once the group has dropped us, a broker would take them as from somebody without a group, while it is empty.
            if consumer.memberid() != self.member_id:
                raise KafkaException(KafkaError(KafkaError._ASSIGNMENT_LOST))
            if asynchronous:
                consumer.commit(offsets=partitions, asynchronous=True)
                self._unanswered[offsets].append(done)
                return
            self._end(done, None, _first_error(None, consumer.commit(offsets=partitions, asynchronous=False)))
        except KafkaException as error:
            self._end(done, None, error)
        except RuntimeError:
            self._end(done, None, _CLOSED)

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Take the answer to an asynchronous commit; it is known by what it committed."""
        offsets = tuple(sorted((each.topic, each.partition, each.offset) for each in partitions))
        waiting = self._unanswered.get(offsets)
        if waiting:
            self._end(waiting.popleft(), None, _first_error(error, partitions))
        if not waiting:
            self._unanswered.pop(offsets, None)

    def look_up(self, consumer: Consumer, partition: Partition, answer: "asyncio.Future[int]", *, last: bool) -> bool:
        """Ask for a committed offset, briefly; return False if it must be asked again, which is not done after the last time."""
        try:
            (found,) = consumer.committed([TopicPartition(*partition)], _ASK_FOR)
        except KafkaException as error:
            if last:
                self._end(answer, -1, error)
            return last
        except RuntimeError:
            self._end(answer, -1, _CLOSED)
            return True
        self._end(answer, found.offset, _first_error(None, [found]))
        return True

    def _end(self, done: "asyncio.Future[_T]", result: _T, error: Exception | None) -> None:
        self._loop.call_soon_threadsafe(settle, done, result, error)


def settle(done: "asyncio.Future[_T]", result: _T, error: Exception | None = None) -> None:
    """End a future, if it has not ended."""
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


def _first_error(error: KafkaError | None, partitions: Sequence[TopicPartition]) -> KafkaException | None:
    for fault in (error, *(partition.error for partition in partitions)):
        if fault is not None:
            return KafkaException(fault)
    return None

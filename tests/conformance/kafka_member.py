"""A member of a group under test: a subscriber, and a listener that remembers what it heard."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from functools import cache
from typing import Protocol

from confluent_kafka import Producer

from consumer_idem.message import Message, Partition
from consumer_idem.ports import Subscriber

SHORT = timedelta(milliseconds=200)
PATIENCE = 30.0

Hook = Callable[[Collection[Partition]], Awaitable[None]]


async def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait for a condition; fail when it does not come."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "the condition did not come"
        await asyncio.sleep(0.01)


def produce(bootstrap: str, topic: str, count: int, partition: int = 0, first: int = 0, batch: int = 1000) -> None:
    """Write the numbers from `first` on as text, in record batches of `batch`."""
    producer = _producer(bootstrap)
    for number in range(first, first + count):
        producer.produce(topic, str(number).encode(), key=b"k", partition=partition)
        if (number + 1 - first) % batch == 0:
            producer.flush(30)
    assert producer.flush(30) == 0


def produce_anew() -> None:
    """Let `produce` begin anew: a producer knows how its log went on, and one that was cut goes on otherwise."""
    _producer.cache_clear()


@cache
def _producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 60_000, "reconnect.backoff.max.ms": 500})


def numbers(messages: Sequence[Message]) -> list[int]:
    """Return what `produce` wrote."""
    return [int(message.value or b"-1") for message in messages]


class Member:
    """Records events and what is held. `start_at` seeks each assigned partition; hooks run inside the listener's calls."""

    def __init__(self, subscriber: Subscriber, start_at: int | None = 0) -> None:
        self.subscriber = subscriber
        self.start_at = start_at
        self.events: list[tuple[str, frozenset[Partition]]] = []
        self.held: set[Partition] = set()
        self.on_assigned: Hook | None = None
        self.on_revoked: Hook | None = None

    async def assigned(self, partitions: Collection[Partition]) -> None:
        self._heard("assigned", partitions)
        if self.on_assigned:
            await self.on_assigned(partitions)
        for partition in partitions:
            if self.start_at is not None:
                await self.subscriber.seek(partition, self.start_at)
        self.held |= set(partitions)

    async def revoked(self, partitions: Collection[Partition]) -> None:
        self.held -= set(partitions)
        self._heard("revoked", partitions)
        if self.on_revoked:
            await self.on_revoked(partitions)

    async def lost(self, partitions: Collection[Partition]) -> None:
        self.held -= set(partitions)
        self._heard("lost", partitions)

    def _heard(self, event: str, partitions: Collection[Partition]) -> None:
        self.events.append((event, frozenset(partitions)))

    def heard(self, event: str) -> list[frozenset[Partition]]:
        """Return the partitions of every such event."""
        return [partitions for name, partitions in self.events if name == event]

    async def holding(self, *partitions: Partition) -> None:
        """Wait until exactly these are held."""
        await until(lambda: self.held == set(partitions))

    async def read(self, partition: Partition, count: int, limit: int = 250) -> list[Message]:
        """Poll until `count` messages have come, and fail if there are more."""
        messages: list[Message] = []
        end = time.monotonic() + PATIENCE
        while len(messages) < count:
            assert time.monotonic() < end, f"{len(messages)} of {count} messages came"
            messages += await self.subscriber.poll(partition, limit, SHORT)
        assert len(messages) == count
        return messages

    async def silence(self, partition: Partition, polls: int = 3) -> bool:
        """Tell whether nothing comes from a partition."""
        return not any([await self.subscriber.poll(partition, 10, SHORT) for _ in range(polls)])


class Join(Protocol):
    """Starts a member of the test's group."""

    async def __call__(
        self, *topics: str, start_at: int | None = 0, bootstrap: str | None = None, prepare: Callable[[Member], None] | None = None
    ) -> Member: ...

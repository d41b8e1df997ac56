"""A database, a broker and relays that come and go, for tests of the outbox on real services."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import aiokafka
import asyncpg

from consumer_idem.kafka.aiokafka_publisher import AiokafkaPublisher
from consumer_idem.kafka.confluent_publisher import ConfluentPublisher
from consumer_idem.message import Header
from consumer_idem.outbox.lane import Backoff
from consumer_idem.outbox.record import PendingRecord
from consumer_idem.outbox.relay import Relay, RelaySettings
from consumer_idem.outbox.table import Outbox
from consumer_idem.outbox.window import Limits
from consumer_idem.ports import Publisher
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.postgres.listen import AsyncpgListener
from consumer_idem.testing.waiting import eventually

QUICK = RelaySettings(
    lease=timedelta(seconds=2),
    limits=Limits(hold=Backoff(first=timedelta(milliseconds=100), most=timedelta(milliseconds=400))),
)
STEADY = replace(QUICK, lease=timedelta(seconds=6))
"""For relays side by side of which none may send what another has sent: on a busy machine a lease of two seconds may run out."""


@dataclass(frozen=True, slots=True)
class Published:
    """One message as a foreign client reads it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]

    @property
    def id(self) -> str:
        (value,) = [value for name, value in self.headers if name == "ce_id"]
        assert value is not None
        return value.decode()


def record(topic: str, value: object, key: str | None = "k", **more: Any) -> PendingRecord:
    return PendingRecord(topic=topic, key=None if key is None else key.encode(), value=str(value).encode(), source="test", **more)


async def read_topic(bootstrap: str, topic: str) -> list[Published]:
    """Read the topic from its beginning to its end, with another client than the relay's."""
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        await consumer._client.set_topics([topic])
        partitions = [aiokafka.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        found: list[Published] = []
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            batches = await consumer.getmany(timeout_ms=200)
            found += [
                Published(each.partition, each.offset, each.key, each.value, each.headers) for batch in batches.values() for each in batch
            ]
        return found
    finally:
        await consumer.stop()


def first_occurrences(messages: Sequence[Published]) -> dict[bytes | None, list[int]]:
    """Return per key the numbers that the values are, each where it came first, in the order of the partition."""
    seen: set[bytes | None] = set()
    order: dict[bytes | None, list[int]] = defaultdict(list)
    for message in sorted(messages, key=lambda each: (each.partition, each.offset)):
        if message.value not in seen:
            seen.add(message.value)
            order[message.key].append(int(message.value or b"-1"))
    return order


@dataclass
class Scene:
    """`add` writes, `relay` starts a relay in this process, `left` counts what is in the outbox."""

    dsn: str
    bootstrap: str
    connection: asyncpg.Connection
    client: str = "confluent"
    outbox: Outbox = field(default_factory=Outbox)

    async def add(self, *records: PendingRecord) -> None:
        """Add them in one transaction."""
        async with self.connection.transaction():
            await self.outbox.add(self.connection, records)

    async def left(self) -> int:
        return int(await self.connection.fetchval("SELECT count(*) FROM idem.outbox"))

    async def drained(self, *, timeout: float = 30.0, left: int = 0) -> None:
        """Wait until no more than `left` records are in the outbox."""

        async def done() -> bool:
            return await self.left() == left

        await eventually(done, timeout=timeout)

    async def published(self, topic: str) -> list[Published]:
        return await read_topic(self.bootstrap, topic)

    async def values(self, topic: str) -> list[int]:
        """Return the values of a topic with one partition, as numbers."""
        return [int(message.value or b"-1") for message in await self.published(topic)]

    @asynccontextmanager
    async def relay(
        self,
        *,
        bootstrap: str | None = None,
        dsn: str | None = None,
        listen: bool = True,
        listen_at: str | None = None,
        statement_cache_size: int = 256,
        settings: RelaySettings = QUICK,
    ) -> AsyncIterator[Relay]:
        """Run a relay with connections of its own, and close it in order."""
        database = AsyncpgDatabase(dsn or self.dsn, max_size=4, statement_cache_size=statement_cache_size)
        publisher = self._publisher(bootstrap or self.bootstrap)
        await publisher.start()
        listener = AsyncpgListener(listen_at or dsn or self.dsn) if listen else None
        relay = Relay(database, publisher, listener=listener, settings=settings)
        running = asyncio.create_task(relay.loop.run())
        try:
            yield relay
        finally:
            await relay.close(timedelta(seconds=2))
            await running
            await publisher.close()
            await database.close()

    def _publisher(self, bootstrap: str) -> Publisher:
        if self.client == "aiokafka":
            return AiokafkaPublisher(bootstrap)
        return ConfluentPublisher(bootstrap, options={"reconnect.backoff.max.ms": 500})

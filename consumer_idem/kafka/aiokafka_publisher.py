"""Publisher on aiokafka: whole record batches, made by us, in our event loop."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from consumer_idem.errors import KafkaUnavailable, TopicUnknown
from consumer_idem.kafka import _aiokafka_clients, _aiokafka_wire
from consumer_idem.kafka._aiokafka_errors import failure, ours
from consumer_idem.kafka._aiokafka_settings import publisher_settings
from consumer_idem.kafka._line import Answers
from consumer_idem.kafka._outbound import Outbound
from consumer_idem.message import OutboxRecord
from consumer_idem.ports import Delivery, FailureKind, NotDelivered

_ANSWER_WITHIN = 10.0
_NOT_SENT = NotDelivered(FailureKind.RETRIABLE, "not sent")


class AiokafkaPublisher:
    """An idempotent producer with acks=all. `options` are aiokafka's own arguments; unsafe ones are refused.

    aiokafka sends a batch until it is acknowledged or refused. Once one has failed for good, its numbers are missing in the
    producer's sequence, and the broker would refuse every later batch of that partition: so another producer takes over, and
    the old one is stopped when what it has under way is answered.
    """

    def __init__(self, bootstrap: str, *, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._settings = publisher_settings(bootstrap, options)
        self._outbound = Outbound(self._send, self._count_partitions)
        self._producer: Any = None
        self._starting = asyncio.Lock()
        self._retiring: set[asyncio.Task[bool]] = set()

    async def start(self) -> None:
        """Connect; raise KafkaUnavailable if no broker answers, or none gives a producer id, within ten seconds."""
        await self._running()

    async def publish(self, records: Sequence[OutboxRecord]) -> Sequence[Delivery]:
        """Send `records` and wait for the answers. Calls may overlap; those for one Kafka partition take turns."""
        return await self._outbound.publish(records)

    async def record_limit(self, topic: str) -> int | None:
        """Return the topic's max.message.bytes, None where the cluster does not tell it, or batches are compressed."""
        if self._settings.get("compression_type"):
            return None
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                client = (await self._running()).client
                limit = await _aiokafka_wire.topic_setting(client, topic, "max.message.bytes")
        except (KafkaError, KafkaUnavailable, NotImplementedError, TimeoutError):
            return None
        return int(limit) if limit is not None else None

    async def close(self) -> None:
        """Wait for what is under way, ten seconds at most, and disconnect."""
        self._retire(self._producer)
        await asyncio.gather(*self._retiring)

    async def _send(self, topic: str, partition: int, records: Sequence[OutboxRecord]) -> Answers:
        try:
            producer = await self._running()
        except KafkaUnavailable as error:
            return [NotDelivered(FailureKind.RETRIABLE, str(error))] * len(records)
        batch = producer.create_batch()
        try:
            for record in records:
                if batch.append(timestamp=None, key=record.key, value=record.value, headers=list(record.headers)) is None:
                    break
        # What cannot be encoded: a header name that is no text, say.
        except (TypeError, ValueError) as error:
            return [NotDelivered(FailureKind.RECORD, repr(error))] * len(records)
        batch.close()
        try:
            written = await (await producer.send_batch(batch, topic, partition=partition))
        except (KafkaError, AssertionError) as error:
            self._retire(producer)
            return [failure(error)] * len(records)
        offsets = [written.offset + at if written.offset >= 0 else -1 for at in range(batch.record_count())]
        return [*offsets, *[_NOT_SENT] * (len(records) - len(offsets))]

    async def _running(self) -> Any:
        async with self._starting:
            if self._producer is not None:
                return self._producer
            producer = AIOKafkaProducer(**self._settings)
            await _aiokafka_clients.start(producer, producer.client, _ANSWER_WITHIN, self._settings["bootstrap_servers"])
            self._producer = producer
            return producer

    def _retire(self, producer: Any) -> None:
        if producer is None or producer is not self._producer:
            return
        self._producer = None
        stopping = asyncio.ensure_future(_aiokafka_clients.stop(producer, producer.client, _ANSWER_WITHIN))
        self._retiring.add(stopping)
        stopping.add_done_callback(self._retiring.discard)

    async def _count_partitions(self, topic: str) -> int:
        client = (await self._running()).client
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                found = (await _aiokafka_wire.describe(client, [topic]))[topic]
        except (KafkaError, TimeoutError) as error:
            raise KafkaUnavailable(repr(error)) from error
        if found.error is not None:
            raise ours(found.error(topic))
        if not found.partitions:
            raise TopicUnknown(f"Topic {topic!r} has no partitions.")
        return found.partitions

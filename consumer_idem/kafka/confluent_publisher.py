"""Publisher on confluent-kafka's plain Producer, which one thread of ours owns."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from consumer_idem.errors import KafkaUnavailable
from consumer_idem.kafka._confluent_errors import ours
from consumer_idem.kafka._confluent_producer import ProducerThread
from consumer_idem.kafka._confluent_settings import connection_settings, publisher_settings
from consumer_idem.kafka._outbound import Outbound
from consumer_idem.message import OutboxRecord
from consumer_idem.ports import Delivery

_ANSWER_WITHIN = 10.0


class ConfluentPublisher:
    """An idempotent producer with acks=all. `options` are librdkafka's own names; unsafe ones are refused.

    There is no delivery time-out: librdkafka keeps a batch until it is acknowledged or refused. `publish` itself ends after
    half a minute; the batch that it waited for stays under way, and is not sent twice when the same records come again.
    """

    def __init__(self, bootstrap: str, *, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._settings = publisher_settings(bootstrap, options)
        self._thread: ProducerThread | None = None
        self._admin: AdminClient | None = None

    async def start(self) -> None:
        """Connect; raise KafkaUnavailable if no broker answers within ten seconds."""
        self._thread = thread = ProducerThread(self._settings)
        self._outbound = Outbound(thread.send, self._count_partitions)
        try:
            await asyncio.to_thread(thread.producer.cluster_id, _ANSWER_WITHIN)
        except KafkaException as error:
            await self.close()
            raise KafkaUnavailable(f"No broker answered at {self._settings['bootstrap.servers']}: {thread.last_error}") from error

    async def publish(self, records: Sequence[OutboxRecord]) -> Sequence[Delivery]:
        """Send `records` and wait for the answers. Calls may overlap; those for one Kafka partition take turns."""
        return await self._outbound.publish(records)

    async def record_limit(self, topic: str) -> int | None:
        """Return the topic's max.message.bytes, None where the cluster does not tell it, or batches are compressed."""
        if self._settings["compression.type"] != "none":
            return None
        if self._admin is None:
            self._admin = AdminClient(connection_settings(self._settings))
        wanted = ConfigResource(ResourceType.TOPIC, topic)
        answer = self._admin.describe_configs([wanted], request_timeout=_ANSWER_WITHIN)[wanted]
        try:
            limit = (await asyncio.wrap_future(answer)).get("max.message.bytes")
        except KafkaException:
            return None
        return int(limit.value) if limit is not None else None

    async def close(self) -> None:
        """Wait for what is under way, ten seconds at most, and end the thread."""
        if self._thread is not None:
            await self._thread.close()
            self._thread = None

    async def _count_partitions(self, topic: str) -> int:
        if self._thread is None:
            raise KafkaUnavailable("This publisher is not started, or closed.")
        try:
            found = await asyncio.to_thread(self._thread.producer.list_topics, topic, _ANSWER_WITHIN)
        except KafkaException as error:
            raise ours(error) from error
        metadata = found.topics[topic]
        if metadata.error is not None:
            raise ours(metadata.error)
        return len(metadata.partitions)

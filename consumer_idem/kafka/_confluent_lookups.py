"""What is asked of Kafka beside the consumer: through an AdminClient, whose answers are futures.

The Consumer itself lets one call in at a time, and a thread that polls all the time leaves no room for others. Nothing that
the group's coordinator answers is asked here: librdkafka 2.16 aborts the process when such an answer comes after its time.
"""

import asyncio
from base64 import b64decode
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._topic import TopicDescription

from consumer_idem.errors import KafkaUnavailable, TopicUnknown
from consumer_idem.kafka._confluent_errors import ours
from consumer_idem.kafka._confluent_settings import connection_settings
from consumer_idem.kafka._held import milliseconds
from consumer_idem.message import Partition
from consumer_idem.ports import Bounds

_ANSWER_WITHIN = 10.0
_LEADERS_WITHIN = 2.0
_NOTHING_SO_LATE = -1
_ANOTHER_LEADER = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION})
_T = TypeVar("_T")


class LookUps:
    """Each answers within ten seconds or raises KafkaUnavailable."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._admin = AdminClient(connection_settings(settings))

    async def describe(self, topic: str) -> TopicDescription:
        """Return what the cluster says of a topic; raise TopicUnknown if there is none."""
        return await _answer(self._admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_WITHIN)[topic])

    async def topic_id(self, topic: str) -> UUID | None:
        """Return the topic's id, None if it is gone or the broker knows no ids."""
        try:
            found: object = (await self.describe(topic)).topic_id
        except TopicUnknown:
            return None
        # librdkafka writes ids as base64 without its padding.
        topic_id = UUID(bytes=b64decode(f"{found}=="))
        return topic_id if topic_id.int else None

    async def bounds(self, partition: Partition) -> Bounds:
        """Return the first offset, the end of what is committed, and the end of all."""
        specs: Any = OffsetSpec  # two of its methods have no types
        earliest, end = self._offset(partition, specs.earliest()), self._offset(partition, specs.latest())
        written = self._offset(partition, specs.latest(), IsolationLevel.READ_UNCOMMITTED)
        first, stable, last = await asyncio.gather(earliest, end, written)
        # Three answers of three moments.
        return Bounds(first, stable, max(stable, last))

    async def offset_at(self, partition: Partition, time: datetime) -> int | None:
        """Return the first offset that is not older than `time`, None if there is none."""
        offset = await self._offset(partition, OffsetSpec.for_timestamp(milliseconds(time)))
        return offset if offset != _NOTHING_SO_LATE else None

    async def _offset(self, partition: Partition, spec: OffsetSpec, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        wanted = TopicPartition(*partition)
        answers = self._admin.list_offsets({wanted: spec}, isolation_level=level, request_timeout=_ANSWER_WITHIN)
        try:
            offset = int((await asyncio.wrap_future(answers[wanted])).offset)
        except KafkaException as error:
            if error.args[0].code() in _ANOTHER_LEADER:
                await self._look_for_leaders(partition.topic)
            raise ours(error) from error
        # Where the leader did not answer, e.g. because it died, librdkafka gives an offset that is none and raises nothing.
        if offset < _NOTHING_SO_LATE:
            await self._look_for_leaders(partition.topic)
            raise KafkaUnavailable
        return offset

    async def _look_for_leaders(self, topic: str) -> None:
        """Let librdkafka forget who led, and in which epoch: of itself it asks as before, for as long as it keeps what it knows."""
        with suppress(KafkaException):
            await asyncio.to_thread(self._admin.list_topics, topic, _LEADERS_WITHIN)


async def _answer(future: "Future[_T]") -> _T:
    try:
        return await asyncio.wrap_future(future)
    except KafkaException as error:
        raise ours(error) from error

"""What aiokafka's public classes cannot do, through its client: metadata without creating topics, topic ids, both ends, raw fetches.

The only module that builds requests of Kafka's protocol. Written against aiokafka 0.13 and 0.14.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, LeaderNotAvailableError, NodeNotReadyError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields
from aiokafka.structs import TopicPartition

from consumer_idem.ports import Bounds

_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1
_EARLIEST = -2
_LATEST = -1
_PAUSE = 0.1
_EVERYTHING = 2**31 - 1
_TOPIC = 2
_NO_ID = UUID(int=0)


class Topic(NamedTuple):
    """A topic as the cluster describes it. `error` is None if it exists and may be read."""

    error: type[KafkaError] | None
    id: UUID | None = None
    partitions: int = 0


class Client(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's client, with metadata requests that create no topic: its own create each topic they name and do not find.

    `on_fetched` hears the bytes that came of each partition, and the offset that was asked for.
    """

    on_fetched: Callable[[TopicPartition, int, bytes], None] | None = None

    async def send(self, node_id: Any, request: Any, **how: Any) -> Any:
        """Send a request; return its answer."""
        answer = await super().send(node_id, request, **how)
        if self.on_fetched is not None and isinstance(request, FetchRequest):
            wanted = {(topic, number): offset for topic, partitions in request.topics for number, offset, _ in partitions}
            for topic, partitions in answer.topics:
                for number, _, _, *_, data in partitions:
                    self.on_fetched(TopicPartition(topic, number), wanted[topic, number], data or b"")
        return answer

    async def _metadata_update(self, cluster_metadata: Any, topics: Collection[str] | None) -> bool:
        request = MetadataRequest(list(topics) if topics else None, allow_auto_topic_creation=False)
        try:
            metadata = await any_node(self, request)
        except KafkaError as error:
            cluster_metadata.failed_update(error)
            return False
        if not metadata.brokers:
            return False
        cluster_metadata.update_metadata(metadata)
        bootstrap = next((key for key in self._conns if key[0] == "bootstrap"), None)
        if bootstrap is not None and self.cluster.brokers():
            self._conns.pop(bootstrap).close()
        return True


async def any_node(client: AIOKafkaClient, request: Request[Any]) -> Any:
    """Send `request` to the nodes one after the other; return the first answer, or raise the last error."""
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    random.shuffle(nodes)
    if any(key[0] == "bootstrap" for key in client._conns):
        nodes.append("bootstrap")
    failure: Exception = NodeNotReadyError("no broker is known")
    for node in nodes:
        try:
            return await client.send(node, request)
        except (KafkaError, NotImplementedError) as error:
            failure = error
    raise failure


async def describe(client: AIOKafkaClient, names: Collection[str]) -> dict[str, Topic]:
    """Return what the cluster says of each topic in `names`, without creating one. Older brokers tell no ids."""
    try:
        answer = await any_node(client, _TopicsRequest(names))
    except (IncompatibleBrokerVersion, NotImplementedError):
        answer = await any_node(client, MetadataRequest(list(names), allow_auto_topic_creation=False))
        return {topic[1]: _topic(topic[0], None, topic[3]) for topic in answer.topics}
    return {topic[1]: _topic(topic[0], topic[2], topic[4]) for topic in answer.topics}


def _topic(code: int, topic_id: UUID | None, partitions: Collection[Any]) -> Topic:
    return Topic(for_code(code) if code else None, topic_id if topic_id != _NO_ID else None, len(partitions))


async def topic_setting(client: AIOKafkaClient, topic: str, name: str) -> str | None:
    """Return one setting of a topic, None if the cluster does not tell it."""
    answer = await any_node(client, DescribeConfigsRequest([(_TOPIC, topic, [name])]))
    entries = answer.resources[0][4]
    return entries[0][1] if entries else None


async def bounds(client: AIOKafkaClient, partition: TopicPartition) -> Bounds:
    """Ask the partition's leader, again and again while there is none or it has changed."""
    while True:
        try:
            earliest, end, written = await asyncio.gather(
                _offset(client, partition, _EARLIEST, _READ_COMMITTED),
                _offset(client, partition, _LATEST, _READ_COMMITTED),
                _offset(client, partition, _LATEST, _READ_UNCOMMITTED),
            )
            # Three answers of three moments.
            return Bounds(earliest, end, max(end, written))
        except KafkaError as error:
            if not error.retriable:
                raise
        client.force_metadata_update()
        await asyncio.sleep(_PAUSE)


async def _offset(client: AIOKafkaClient, partition: TopicPartition, time: int, isolation: int) -> int:
    leader = client.cluster.leader_for_partition(partition)
    if leader in (None, -1):
        raise LeaderNotAvailableError(partition)
    response = await client.send(leader, OffsetRequest(-1, isolation, [(partition.topic, [(partition.partition, time)])]))
    _, code, *_, offset = response.topics[0][1][0]
    if code:
        raise for_code(code)(partition)
    return int(offset)


class RawFetch(NamedTuple):
    """The bytes of whole record batches, the first one holding the wanted offset, and the producers aborted at that offset."""

    data: bytes
    aborted: frozenset[int]


async def fetch(client: AIOKafkaClient, partition: TopicPartition, offset: int) -> RawFetch:
    """Fetch `partition` from `offset` on, undecoded; at least one whole batch, however large."""
    leader = client.cluster.leader_for_partition(partition)
    wanted = [(partition.topic, [(partition.partition, offset, _EVERYTHING)])]
    response = await client.send(leader, FetchRequest(0, 1, 1, _READ_COMMITTED, wanted))
    _, code, _, *rest = response.topics[0][1][0]
    if code:
        raise for_code(code)()
    # Ahead of the data lie [lso, aborted] up to version 4, [lso, start, aborted] up to 10, [lso, start, aborted, replica] from 11.
    aborted = (rest[2] if len(rest) > 3 else rest[1]) or ()
    return RawFetch(rest[-1] or b"", frozenset(producer for producer, first in aborted if first <= offset))


class _Uuid:
    """Kafka's UUID: 16 bytes."""

    @staticmethod
    def encode(value: UUID) -> bytes:
        return value.bytes

    @staticmethod
    def decode(data: BytesIO) -> UUID:
        return UUID(bytes=data.read(16))

    @staticmethod
    def repr(value: UUID) -> str:
        return str(value)


_TAGS = ("tags", TaggedFields)
_NUMBERS = CompactArray(Int32)


class _TopicsAnswer(Response):  # type: ignore[misc]  # aiokafka has no types
    """Metadata, version 12: the first field layout that names topics and tells their ids."""

    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(("node_id", Int32), ("host", CompactString()), ("port", Int32), ("rack", CompactString()), _TAGS)),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString()),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", _NUMBERS),
                        ("isr", _NUMBERS),
                        ("offline_replicas", _NUMBERS),
                        _TAGS,
                    ),
                ),
                ("authorized_operations", Int32),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _TopicsRequestV12(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TopicsAnswer
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("topic", CompactString()), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        _TAGS,
    )


class _TopicsRequest(Request[_TopicsRequestV12]):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 3

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def build(self, request_struct_class: type[_TopicsRequestV12]) -> _TopicsRequestV12:
        return request_struct_class([(_NO_ID, name, {}) for name in self._names], False, False, {})

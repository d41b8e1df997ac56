"""The demo's own Kafka clients: they make the topics, send the requests, and read what was published."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumer_idem.demo.check import Record
from consumer_idem.demo.names import PARTITIONS, Names
from consumer_idem.demo.workload import Request
from consumer_idem.errors import KafkaUnavailable

_PATIENCE = 30.0
_MARK = b"end of the demo"
_FEW = 1000


class Broker:
    """Blocking calls belong into a thread."""

    def __init__(self, bootstrap: str, names: Names, *, replication: int) -> None:
        self._bootstrap = bootstrap
        self._names = names
        self._replication = replication
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})

    def create_topics(self) -> None:
        """Make both topics and wait for them; raise KafkaUnavailable with the broker's words if that fails."""
        topics = [NewTopic(name, PARTITIONS, self._replication) for name in (self._names.requested, self._names.applied)]
        try:
            for made in self._admin.create_topics(topics, operation_timeout=_PATIENCE, request_timeout=_PATIENCE).values():
                made.result(_PATIENCE)
        except KafkaException as error:
            raise KafkaUnavailable(f"The demo's topics could not be made at {self._bootstrap}: {error.args[0].str()}.") from error

    def delete_topics(self) -> None:
        """Remove both topics."""
        for gone in self._admin.delete_topics([self._names.requested, self._names.applied]).values():
            gone.result(_PATIENCE)

    def send(self, requests: Sequence[Request]) -> dict[int, int]:
        """Send all requests, in order within each partition; return for each the offset behind the last one."""
        ends: dict[int, int] = {}
        last = {request.partition: number for number, request in enumerate(requests)}
        self._send((request for number, request in enumerate(requests) if number != last[request.partition]), ends)
        # The last of each partition in a batch of its own: the small broker takes the last batch for one message when it is
        # asked where a partition ends, and to a worker a topic that ends before what was read is another topic.
        self._send((requests[number] for number in last.values()), ends)
        return ends

    def _send(self, requests: Iterable[Request], ends: dict[int, int]) -> None:
        deliver = _noting(ends)
        for number, request in enumerate(requests):
            self._producer.produce(
                self._names.requested, key=request.key, value=request.value, partition=request.partition, on_delivery=deliver
            )
            if number % _FEW == 0:
                self._producer.poll(0)
        self._flush()

    async def published(self) -> frozenset[Record]:
        """Return every record on the output topic, read from its beginning to a mark that is sent behind the last one."""
        ends = await asyncio.to_thread(self._mark_ends)
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False, fetch_max_wait_ms=100)
        await consumer.start()
        try:
            return await _read(consumer, {TopicPartition(self._names.applied, number): end for number, end in ends.items()})
        finally:
            await consumer.stop()

    def _mark_ends(self) -> dict[int, int]:
        # Not the end offsets, which some brokers give too low.
        ends: dict[int, int] = {}
        for number in range(PARTITIONS):
            self._producer.produce(self._names.applied, value=_MARK, partition=number, on_delivery=_noting(ends))
        self._flush()
        return ends

    def _flush(self) -> None:
        left = self._producer.flush(_PATIENCE)
        if left:
            raise KafkaUnavailable(f"{self._bootstrap} did not acknowledge {left} messages within {_PATIENCE:.0f} s.")


def _noting(ends: dict[int, int]) -> Callable[[Any, Message], None]:
    def deliver(error: Any, message: Message) -> None:
        if error is not None:
            raise KafkaUnavailable(f"A message of the demo was not delivered: {error}.")
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        ends[partition] = max(ends.get(partition, 0), offset + 1)

    return deliver


async def _read(consumer: Any, ends: dict[TopicPartition, int]) -> frozenset[Record]:
    consumer.assign(list(ends))
    await consumer.seek_to_beginning()
    records: set[Record] = set()
    unread = set(ends)
    async with asyncio.timeout(_PATIENCE):
        while unread:
            for partition, messages in (await consumer.getmany(*unread, timeout_ms=200)).items():
                records.update(_record(message) for message in messages if message.value != _MARK)
                if messages and messages[-1].offset >= ends[partition] - 1:
                    unread.discard(partition)
    return frozenset(records)


def _record(message: Any) -> Record:
    headers = dict(message.headers)
    return Record(headers["ce_id"].decode(), json.loads(message.value)["payment_id"])

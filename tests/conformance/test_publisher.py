"""What every Publisher does, tried on Apache Kafka with every client."""

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from consumer_idem.errors import KafkaUnavailable
from consumer_idem.message import Header, OutboxRecord
from consumer_idem.ports import Delivered, Delivery, FailureKind, NotDelivered, Publisher
from tests.conformance.conftest import MakePublisher


def record(topic: str, value: bytes | None = b"v", key: bytes | None = b"k", headers: Sequence[Header] = ()) -> OutboxRecord:
    return OutboxRecord(id=uuid.uuid4(), topic=topic, key=key, value=value, headers=headers)


def contents(bootstrap: str, topic: str, partitions: int = 1) -> list[list[Any]]:
    """Return what every partition holds, as another client reads it from the beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: list[list[Any]] = []
    try:
        for number in range(partitions):
            end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            consumer.assign([TopicPartition(topic, number, 0)])
            messages: list[Any] = []
            until = time.monotonic() + 20
            while len(messages) < end:
                assert time.monotonic() < until
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    messages.append(message)
            found.append(messages)
    finally:
        consumer.close()
    return found


def kinds(deliveries: Sequence[Delivery]) -> list[FailureKind | None]:
    return [delivery.kind if isinstance(delivery, NotDelivered) else None for delivery in deliveries]


async def test_every_record_is_delivered_where_it_says(publisher: Publisher, kafka: str, topic: Any) -> None:
    name = topic(4)
    records = [record(name, str(number).encode(), key=f"key-{number % 50}".encode()) for number in range(2000)]

    deliveries = await publisher.publish(records)

    found = contents(kafka, name, 4)
    assert all(isinstance(delivery, Delivered) for delivery in deliveries)
    at = {(message.partition(), message.offset()): message.value() for messages in found for message in messages}
    assert len(at) == 2000
    assert [at[delivery.partition, delivery.offset] for delivery in deliveries if isinstance(delivery, Delivered)] == [
        record.value for record in records
    ]
    for messages in found:
        values = [int(message.value()) for message in messages]
        assert values == sorted(values)


async def test_headers_tombstones_and_null_keys_are_sent_as_they_are(publisher: Publisher, kafka: str, topic: Any) -> None:
    name = topic()
    headers = [("ce_id", b"1"), ("ce_id", b"2"), ("none", None), ("bytes", b"\xff\x00"), ("empty", b""), ("ключ", b"v")]

    await publisher.publish([record(name, None, b"k", headers), record(name, b"", None), record(name, b"v", b"")])

    ((tombstone, keyless, empty),) = contents(kafka, name)
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"k", None, headers)
    assert (keyless.key(), keyless.value()) == (None, b"")
    assert (empty.key(), empty.value()) == (b"", b"v")


async def test_records_without_a_key_are_spread_and_always_alike(publisher: Publisher, topic: Any) -> None:
    name = topic(4)
    records = [record(name, key=None) for _ in range(200)]

    first, second = await publisher.publish(records), await publisher.publish(records)

    where = [delivery.partition for delivery in first if isinstance(delivery, Delivered)]
    assert {where.count(partition) > 20 for partition in range(4)} == {True}
    assert where == [delivery.partition for delivery in second if isinstance(delivery, Delivered)]


async def test_c18_a_key_goes_where_other_clients_put_it(publisher: Publisher, kafka: str, topic: Any) -> None:
    name = topic(7)
    keys = [uuid.uuid4().bytes[: number % 17] for number in range(10_000)]
    placed: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random", "queue.buffering.max.messages": 20_000})
    for key in keys:
        producer.produce(name, b"v", key, on_delivery=lambda _, message: placed.setdefault(message.key() or b"", message.partition()))
    assert producer.flush(30) == 0

    deliveries = await publisher.publish([record(name, key=key) for key in keys])

    assert [placed[key] for key in keys] == [delivery.partition for delivery in deliveries if isinstance(delivery, Delivered)]


async def test_what_is_wrong_with_a_topic_is_told_as_such(publisher: Publisher, kafka_admin: Any, topic: Any) -> None:
    name = topic()

    deliveries = await publisher.publish([record("no-such-topic"), record(name), record("no-such-topic"), record("not/a topic")])

    assert kinds(deliveries) == [FailureKind.TOPIC, None, FailureKind.TOPIC, FailureKind.TOPIC]
    assert "no-such-topic" not in kafka_admin.list_topics(timeout=10).topics


async def test_c9_a_record_too_large_for_its_topic_stops_those_behind_it(publisher: Publisher, kafka: str, topic: Any) -> None:
    name = topic(1, {"max.message.bytes": "20000"})
    records = [record(name, str(number).encode()) for number in range(10)]
    records[4] = record(name, b"x" * 30_000)

    deliveries = await publisher.publish(records)
    rest = await publisher.publish(records[5:])

    assert kinds(deliveries) == [None] * 4 + [FailureKind.RECORD] + [FailureKind.RETRIABLE] * 5
    assert kinds(rest) == [None] * 5
    assert [message.value() for message in contents(kafka, name)[0]] == [str(number).encode() for number in (*range(4), *range(5, 10))]


async def test_records_that_are_too_large_only_together_are_delivered(publisher: Publisher, kafka: str, topic: Any) -> None:
    name = topic(1, {"max.message.bytes": "20000"})
    records = [record(name, b"%05d" % number + b"x" * 900) for number in range(100)]

    deliveries = await publisher.publish(records)

    assert kinds(deliveries) == [None] * 100
    assert [int(message.value()[:5]) for message in contents(kafka, name)[0]] == list(range(100))


async def test_a_record_above_a_megabyte_is_delivered_where_the_topic_allows_it(publisher: Publisher, kafka: str, topic: Any) -> None:
    name = topic(1, {"max.message.bytes": "8000000"})

    deliveries = await publisher.publish([record(name, b"small"), record(name, b"x" * 5_000_000), record(name, b"small")])

    assert kinds(deliveries) == [None] * 3
    assert [len(message.value()) for message in contents(kafka, name)[0]] == [5, 5_000_000, 5]


async def test_a_record_that_the_broker_refuses_is_found_in_its_batch(publisher: Publisher, kafka: str, topic: Any) -> None:
    name = topic(1, {"cleanup.policy": "compact"})
    records = [record(name, str(number).encode()) for number in range(20)]
    records[13] = record(name, b"no key", key=None)

    deliveries = await publisher.publish(records)

    assert kinds(deliveries) == [None] * 13 + [FailureKind.RECORD] + [FailureKind.RETRIABLE] * 6
    assert len(contents(kafka, name)[0]) == 13


async def test_the_limit_of_a_topic_is_looked_up(publisher: Publisher, topic: Any) -> None:
    name = topic(1, {"max.message.bytes": "20000"})

    assert await publisher.record_limit(name) == 20_000
    assert await publisher.record_limit("no-such-topic") is None


async def test_publishing_does_not_block_the_event_loop(publisher: Publisher, topic: Any) -> None:
    name = topic(4)
    pauses = []
    # A busy machine may hold the loop up as well, but hardly three times.
    for _ in range(3):
        records = [record(name, b"x" * 300, key=str(number).encode()) for number in range(5000)]
        longest, last = 0.0, time.monotonic()
        publishing = asyncio.ensure_future(publisher.publish(records))
        while not publishing.done():
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert kinds(await publishing) == [None] * 5000
        pauses.append(longest)

    assert min(pauses) < 0.5


async def test_no_broker_is_an_error_in_bounded_time(make_publisher: MakePublisher, patience: None) -> None:
    publisher = make_publisher("127.0.0.1:1")
    began = time.monotonic()

    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:1"):
        await publisher.start()

    assert time.monotonic() - began < 8

"""What is particular to aiokafka."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import aiokafka.codec
import pytest
from confluent_kafka import Producer

from consumer_idem.errors import CodecMissing
from consumer_idem.kafka.aiokafka import AiokafkaPublisher, AiokafkaSubscriber
from consumer_idem.message import Partition
from tests.conformance.kafka_member import Member, numbers, produce, until
from tests.conformance.test_publisher import kinds, record

SESSION = timedelta(seconds=3)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_is_read(kafka: str, topic: Any, codec: str) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka, "compression.type": codec, "linger.ms": 50})
    for number in range(300):
        producer.produce(name, str(number))
    producer.flush(10)
    member = Member(AiokafkaSubscriber(kafka, name, session_timeout=SESSION))
    await member.subscriber.start([name], member)
    await member.holding(Partition(name, 0))

    assert numbers(await member.read(Partition(name, 0), 300)) == list(range(300))
    await member.subscriber.close()


async def test_a_missing_library_is_no_damage(kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka, "compression.type": "zstd", "linger.ms": 50})
    for number in range(300):
        producer.produce(name, str(number))
    producer.flush(10)
    member = Member(AiokafkaSubscriber(kafka, name, session_timeout=SESSION))
    await member.subscriber.start([name], member)
    await member.holding(Partition(name, 0))

    with monkeypatch.context() as without:
        without.setattr(aiokafka.codec, "cramjam", None)
        for _ in range(2):
            with pytest.raises(CodecMissing, match="pip install"):
                await member.read(Partition(name, 0), 300)

    assert numbers(await member.read(Partition(name, 0), 300)) == list(range(300))
    await member.subscriber.close()


async def test_partitions_that_stay_are_told_again_and_wait_for_seek(kafka: str, topic: Any) -> None:
    name = topic(2)
    for partition in range(2):
        produce(kafka, name, 10, partition)
    first, second = (Member(AiokafkaSubscriber(kafka, name, session_timeout=SESSION)) for _ in range(2))
    await first.subscriber.start([name], first)
    await until(lambda: len(first.held) == 2)
    await first.subscriber.commit({Partition(name, 0): 5, Partition(name, 1): 5})
    first.start_at = None
    await second.subscriber.start([name], second)
    await until(lambda: len(first.held) == 1)
    (kept,) = first.held

    told = first.heard("assigned")
    silent = await first.silence(kept)
    await first.subscriber.seek(kept, 2)
    read = await first.read(kept, 8)

    assert [kept in partitions for partitions in told] == [True, True]
    assert silent
    assert numbers(read) == list(range(2, 10))
    await asyncio.gather(first.subscriber.close(), second.subscriber.close())


async def test_a_lane_that_does_not_poll_stays_in_the_group(kafka: str, topic: Any) -> None:
    name = topic()
    member = Member(AiokafkaSubscriber(kafka, name, session_timeout=timedelta(seconds=1)))
    await member.subscriber.start([name], member)
    await member.holding(Partition(name, 0))
    began = time.monotonic()
    while time.monotonic() - began < 2.5:
        assert await member.subscriber.holds(Partition(name, 0))
        await asyncio.sleep(0.1)

    assert len(member.events) == 1
    await member.subscriber.close()


async def test_a_refused_batch_does_not_spoil_the_partition(kafka: str, topic: Any) -> None:
    name = topic(1, {"max.message.bytes": "20000"})
    publisher = AiokafkaPublisher(kafka)
    await publisher.start()
    before = await publisher.publish([record(name, b"0")])
    refused = await publisher.publish([record(name, b"x" * 30_000)])
    after = [await publisher.publish([record(name, b"1")]) for _ in range(3)]
    await publisher.close()

    assert kinds(before) == [None]
    assert kinds(refused) != [None]
    assert [kinds(deliveries) for deliveries in after] == [[None]] * 3


async def test_two_publishes_to_different_topics_do_not_wait_for_each_other(kafka: str, topic: Any) -> None:
    publisher = AiokafkaPublisher(kafka)
    await publisher.start()
    names = [topic() for _ in range(4)]

    answers = await asyncio.gather(*(publisher.publish([record(name) for _ in range(50)]) for name in names))
    await publisher.close()

    assert [kinds(deliveries) for deliveries in answers] == [[None] * 50] * 4


async def test_a_subscriber_that_was_never_started_can_be_closed() -> None:
    subscriber = AiokafkaSubscriber("127.0.0.1:1", "g")

    await subscriber.close()

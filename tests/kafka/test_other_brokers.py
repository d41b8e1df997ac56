"""Brokers unlike that of the other tests: one that creates every topic it is asked for, and the small one."""

import asyncio
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from consumer_idem.errors import KafkaUnavailable, PartitionLost, TopicUnknown
from consumer_idem.kafka import aiokafka_publisher
from consumer_idem.kafka.aiokafka import AiokafkaPublisher, AiokafkaSubscriber
from consumer_idem.kafka.confluent import ConfluentPublisher, ConfluentSubscriber
from consumer_idem.message import Partition
from consumer_idem.ports import Delivered, FailureKind, Publisher, Subscriber
from tests.conformance.kafka_member import SHORT, Member, until
from tests.conformance.test_publisher import kinds, record
from tests.conftest import make_topic

SESSION = timedelta(seconds=6)
SUBSCRIBERS: dict[str, Callable[[str, str], Subscriber]] = {
    "aiokafka": lambda bootstrap, group: AiokafkaSubscriber(
        bootstrap, group, session_timeout=SESSION, options={"metadata_max_age_ms": 200}
    ),
    "confluent": lambda bootstrap, group: ConfluentSubscriber(
        bootstrap, group, session_timeout=SESSION, options={"topic.metadata.refresh.interval.ms": 200}
    ),
}
PUBLISHERS: list[Callable[[str], Publisher]] = [AiokafkaPublisher, ConfluentPublisher]


async def test_c10_no_client_creates_a_topic(services: Any) -> None:
    broker = services.kafka(properties={"auto.create.topics.enable": "true"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    make_topic(admin, "deleted", 1, {})
    members = [Member(make(broker.bootstrap, name)) for name, make in SUBSCRIBERS.items()]
    for member in members:
        with pytest.raises(TopicUnknown):
            await member.subscriber.start(["missing"], member)
    members = [Member(make(broker.bootstrap, name)) for name, make in SUBSCRIBERS.items()]
    publishers = [make(broker.bootstrap) for make in PUBLISHERS]
    await asyncio.gather(*(member.subscriber.start(["deleted"], member) for member in members), *(each.start() for each in publishers))
    await until(lambda: all(member.held for member in members))
    assert [kinds(await each.publish([record("deleted")])) for each in publishers] == [[None]] * 2

    admin.delete_topics(["deleted"])["deleted"].result(10)
    await until(lambda: "deleted" not in admin.list_topics(timeout=10).topics)
    for publisher in publishers:
        assert kinds(await publisher.publish([record("missing"), record("deleted")])) == [FailureKind.TOPIC] * 2
    for _ in range(10):
        for member in members:
            try:
                await member.subscriber.poll(Partition("deleted", 0), 10, SHORT)
            except (KafkaUnavailable, PartitionLost, TopicUnknown):
                continue

    assert not {"missing", "deleted"} & admin.list_topics(timeout=10).topics.keys()
    await asyncio.gather(*(member.subscriber.close() for member in members), *(each.close() for each in publishers))


@pytest.mark.parametrize("client", SUBSCRIBERS)
async def test_the_small_broker_is_read_and_written(services: Any, client: str) -> None:
    broker = services.small_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 4, 1)])["t"].result(10)
    publisher = ConfluentPublisher(broker.bootstrap)
    await publisher.start()
    deliveries = await publisher.publish([record("t", str(number).encode(), uuid.uuid4().bytes) for number in range(1000)])
    member = Member(SUBSCRIBERS[client](broker.bootstrap, "g"))
    await member.subscriber.start(["t"], member)
    await until(lambda: len(member.held) == 4)

    read = await asyncio.gather(
        *(member.read(partition, sum(isinstance(each, Delivered) and each.partition == partition.number for each in deliveries))
          for partition in sorted(member.held))
    )  # fmt: skip
    await member.subscriber.commit({Partition("t", 0): 5})

    assert kinds(deliveries) == [None] * 1000
    assert sorted(int(message.value or b"") for messages in read for message in messages) == list(range(1000))
    assert await member.subscriber.committed(Partition("t", 0)) == 5
    assert await member.subscriber.committed(Partition("t", 1)) is None
    assert await member.subscriber.topic_id("t") is not None
    await asyncio.gather(member.subscriber.close(), publisher.close())


async def test_the_small_broker_has_no_producer_id_for_aiokafka(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka_publisher, "_ANSWER_WITHIN", 1.0)
    publisher = AiokafkaPublisher(services.small_broker().bootstrap)

    with pytest.raises(KafkaUnavailable):
        await publisher.start()

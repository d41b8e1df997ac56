"""The proxy before a real broker: answers that are lost, clients that stay behind it."""

import asyncio
from typing import Any

import pytest

from consumer_idem.testing import Fate, KafkaApi, LostKafka, TcpProxy
from consumer_idem.testing.services.choose import ExternalKafka, Kafka
from tests.conftest import MakeTopic


@pytest.fixture
def proxied(broker: Kafka) -> Any:
    """The run's broker, where a proxy can stand before it."""
    if isinstance(broker, ExternalKafka):
        pytest.skip("the given Kafka cannot be put behind a proxy")
    return broker


async def _produce(bootstrap: str, topic: str, *values: bytes) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=5000)
    async with producer:
        for value in values:
            await producer.send_and_wait(topic, value)


async def _consume(bootstrap: str, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    async with consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        found: list[bytes] = []
        while await consumer.position(partition) < end:
            found += [message.value for message in (await consumer.getmany(timeout_ms=1000)).get(partition, [])]
        return found


async def test_an_idempotent_producer_sends_again_what_was_written_when_the_answer_is_lost(proxied: Any, topic: MakeTopic) -> None:
    name = topic(1)
    lost = LostKafka(KafkaApi.PRODUCE)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port, triggers=[lost]) as proxy:
        lost.arm(times=2)

        await _produce(proxy.bootstrap, name, b"a", b"b", b"c")

        assert lost.fired == 2
    assert await _consume(proxied.bootstrap, name) == [b"a", b"b", b"c"]


async def test_clients_behind_the_proxy_stay_behind_it(proxied: Any, topic: MakeTopic) -> None:
    name = topic(1)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port) as proxy:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers=proxy.bootstrap, request_timeout_ms=2000) as producer:
            await producer.send_and_wait(name, b"before")
            proxy.hold()
            sending = asyncio.create_task(producer.send_and_wait(name, b"while held"))
            done, _ = await asyncio.wait([sending], timeout=0.5)
            assert not done
            assert await _consume(proxied.bootstrap, name) == [b"before"]
            proxy.release()
            await sending


@pytest.mark.parametrize(("what", "expected"), [("answer", 1), ("request", None)])
async def test_an_offset_commit_is_lost_before_or_after_it_is_written(
    proxied: Any, topic: MakeTopic, what: Any, expected: int | None
) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    name = topic(1)
    partition = TopicPartition(name, 0)
    await _produce(proxied.bootstrap, name, b"a", b"b")
    lost = LostKafka(KafkaApi.OFFSET_COMMIT, what, then=Fate.HANG)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port, triggers=[lost]) as proxy:
        consumer = AIOKafkaConsumer(bootstrap_servers=proxy.bootstrap, group_id=name, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([partition])
        lost.arm()
        committing = asyncio.create_task(consumer.commit({partition: 1}))
        await lost.until_fired()

        async with AIOKafkaConsumer(bootstrap_servers=proxied.bootstrap, group_id=name, enable_auto_commit=False) as direct:
            assert await direct.committed(partition) == expected

        lost.disarm()
        proxy.cut()
        await committing
        await consumer.stop()

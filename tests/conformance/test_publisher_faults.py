"""What every Publisher does when the broker is down, or silent, or its answers get lost."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from consumer_idem.kafka import _outbound
from consumer_idem.ports import Delivered, FailureKind, Publisher
from consumer_idem.testing import Fate, KafkaApi, LostKafka, TcpProxy
from tests.conformance.conftest import MakePublisher
from tests.conformance.kafka_member import until
from tests.conformance.test_publisher import contents, kinds, record


def values(bootstrap: str, topic: str) -> list[int]:
    return [int(message.value()) for message in contents(bootstrap, topic)[0]]


async def test_c7_a_lost_answer_neither_doubles_nor_reorders(make_publisher: MakePublisher, proxied: Any, topic: Any) -> None:
    name = topic()
    lost = LostKafka(KafkaApi.PRODUCE)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port, triggers=[lost]) as proxy:
        publisher = make_publisher(proxy.bootstrap)
        await publisher.start()
        lost.arm(times=4, every=3)
        for start in range(0, 200, 10):
            deliveries = await publisher.publish([record(name, str(number).encode()) for number in range(start, start + 10)])
            assert kinds(deliveries) == [None] * 10
        await publisher.close()

    assert lost.fired == 4
    assert values(proxied.bootstrap, name) == list(range(200))


async def test_c11_a_broker_that_is_down_is_waited_for(make_publisher: MakePublisher, mortal: Any, new_topic: Any) -> None:
    name = new_topic(mortal)
    publisher = make_publisher(mortal.bootstrap)
    await publisher.start()
    await publisher.publish([record(name, b"0")])
    await asyncio.to_thread(mortal.kill9)

    publishing = asyncio.ensure_future(publish_until_delivered(publisher, [record(name, str(number).encode()) for number in range(1, 21)]))
    await asyncio.wait({publishing}, timeout=1)
    waited = not publishing.done()
    await asyncio.to_thread(mortal.start)
    await publishing
    await publisher.close()

    assert waited
    assert values(mortal.bootstrap, name) == list(range(21))


async def publish_until_delivered(publisher: Publisher, records: Sequence[Any]) -> int:
    """Send again what is RETRIABLE, as the relay does; return how often it was sent."""
    for attempt in range(1, 200):
        deliveries = await publisher.publish(records)
        records = [record for record, delivery in zip(records, deliveries, strict=True) if not isinstance(delivery, Delivered)]
        if not records:
            return attempt
        assert set(kinds(deliveries)) <= {None, FailureKind.RETRIABLE}
        await asyncio.sleep(0.05)
    raise AssertionError("not delivered")


async def test_a_silent_broker_ends_a_publish_and_nothing_is_sent_twice(
    make_publisher: MakePublisher, proxied: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_outbound, "ANSWER_WITHIN", timedelta(seconds=1))
    name = topic()
    records = [record(name, str(number).encode()) for number in range(1, 21)]
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port) as proxy:
        publisher = make_publisher(proxy.bootstrap)
        await publisher.start()
        await publisher.publish([record(name, b"0")])
        proxy.hold()
        began = time.monotonic()
        deliveries = await publisher.publish(records)
        took = time.monotonic() - began
        proxy.release()
        attempts = await publish_until_delivered(publisher, records)
        await publisher.close()

    assert kinds(deliveries) == [FailureKind.RETRIABLE] * 20
    assert took < 3
    assert attempts < 20
    assert values(proxied.bootstrap, name) == list(range(21))


async def test_a_request_that_was_never_answered_is_sent_again(
    make_publisher: MakePublisher, quick_requests: Any, proxied: Any, topic: Any
) -> None:
    name = topic()
    lost = LostKafka(KafkaApi.PRODUCE, then=Fate.HANG)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port, triggers=[lost]) as proxy:
        publisher = make_publisher(proxy.bootstrap, options=quick_requests)
        await publisher.start()
        await publisher.publish([record(name, b"0")])
        lost.arm()
        attempts = await publish_until_delivered(publisher, [record(name, str(number).encode()) for number in range(1, 21)])
        await publisher.close()

    assert lost.fired == 1
    assert attempts <= 2
    assert values(proxied.bootstrap, name) == list(range(21))


async def test_closing_ends_in_time_when_nobody_answers(make_publisher: MakePublisher, proxied: Any, topic: Any, patience: None) -> None:
    name = topic()
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port) as proxy:
        publisher = make_publisher(proxy.bootstrap)
        await publisher.start()
        await publisher.publish([record(name, b"0")])
        proxy.hold()
        publishing = asyncio.ensure_future(publisher.publish([record(name, b"1")]))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await publisher.close()
        deliveries = await publishing

    assert time.monotonic() - began < 6
    assert kinds(deliveries) == [FailureKind.RETRIABLE]


async def test_a_cancelled_publish_leaves_the_publisher_usable(publisher: Publisher, kafka: str, topic: Any) -> None:
    name = topic()
    publishing = asyncio.ensure_future(publisher.publish([record(name, str(number).encode()) for number in range(10)]))
    await asyncio.sleep(0)
    publishing.cancel()
    await asyncio.wait({publishing})

    deliveries = await publisher.publish([record(name, str(number).encode()) for number in range(10, 20)])

    assert kinds(deliveries) == [None] * 10
    assert values(kafka, name)[-10:] == list(range(10, 20))


async def test_a_topic_that_is_made_again_is_written_to(publisher: Publisher, kafka: str, kafka_admin: Any, topic: Any) -> None:
    name = topic()
    assert kinds(await publisher.publish([record(name, str(number).encode()) for number in range(10)])) == [None] * 10
    kafka_admin.delete_topics([name])[name].result(10)
    await until(lambda: name not in kafka_admin.list_topics(timeout=10).topics)
    late = record(name, b"10")
    gone = await publisher.publish([late])
    topic(name=name)

    for _ in range(100):
        if kinds(await publisher.publish([late])) == [None]:
            break
        await asyncio.sleep(0.1)

    assert kinds(gone) == [FailureKind.TOPIC]
    assert values(kafka, name) == [10]

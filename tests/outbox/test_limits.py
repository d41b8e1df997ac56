"""Records that are too large for their topic are refused where they are made, where the topic's limit is known."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_idem.errors import RecordTooLarge
from consumer_idem.kafka.aiokafka_publisher import AiokafkaPublisher
from consumer_idem.kafka.confluent_publisher import ConfluentPublisher
from consumer_idem.message import OutboxRecord
from consumer_idem.outbox.headers import cloud_event
from consumer_idem.outbox.limits import RecordLimits, _at_most, size_of
from consumer_idem.outbox.record import PendingRecord
from consumer_idem.outcome import Applied, Quarantined
from consumer_idem.ports import Delivered, FailureKind, NotDelivered, Publisher
from consumer_idem.testing.waiting import eventually
from tests.conftest import MakeTopic
from tests.outbox.scene import read_topic, record
from tests.shop import Shop, declare, insert, open_shop, payment

LIMIT = 20_000
TIME = "2026-11-30T12:48:41.000000Z"


def sent(record: PendingRecord) -> OutboxRecord:
    """The record as a relay sends it."""
    headers = [*cloud_event(record.message_id, record.source, record.type, TIME), *record.headers]
    return OutboxRecord(id=record.message_id, topic=record.topic, key=record.key, value=record.value, headers=headers)


def encoded(record: PendingRecord) -> int:
    """How many bytes a Kafka client makes of the record, alone in a batch."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
    assert builder.append(0, None, record.key, record.value, headers=list(sent(record).headers)) is not None
    return len(builder.build())


def of_size(size: int, topic: str = "t") -> PendingRecord:
    """A record that takes exactly so many bytes."""
    record = PendingRecord(topic=topic, source="test", key=b"k", value=b"x" * (size - 250))
    record = record._replace(value=b"x" * (size - 250 + size - size_of(record)))
    assert size_of(record) == size
    return record


records = st.builds(
    PendingRecord,
    topic=st.just("t"),
    message_time=st.none(),
    source=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=200),
    type=st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=200),
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=300) | st.sampled_from([bytes(7700), bytes(8192)]),
    headers=st.lists(st.tuples(st.text("aé😀", min_size=1, max_size=70), st.none() | st.binary(max_size=70)), max_size=130).map(tuple),
)


@given(records)
@settings(max_examples=200, deadline=None)
def test_the_size_is_what_a_client_sends(record: PendingRecord) -> None:
    assert size_of(record) == encoded(record)
    assert _at_most(record) >= size_of(record)


@pytest.mark.parametrize("make", [AiokafkaPublisher, ConfluentPublisher])
async def test_c9_kafka_takes_what_is_not_refused_and_nothing_larger(make: Any, kafka: str, topic: MakeTopic) -> None:
    name = topic(1, {"max.message.bytes": str(LIMIT)})
    publisher: Publisher = make(kafka)
    await publisher.start()
    limits = RecordLimits()
    limits.check(of_size(1000, name))
    await limits.learn(publisher)

    limits.check(of_size(LIMIT, name))
    with pytest.raises(RecordTooLarge, match=rf"{name} takes 20001 bytes in Kafka, and the topic no more than 20000\. Send less"):
        limits.check(of_size(LIMIT + 1, name))
    (fits,) = await publisher.publish([sent(of_size(LIMIT, name))])
    (refused,) = await publisher.publish([sent(of_size(LIMIT + 1, name))])
    await publisher.close()

    assert isinstance(fits, Delivered)
    assert isinstance(refused, NotDelivered)
    assert refused.kind is FailureKind.RECORD


@pytest.mark.parametrize(
    ("make", "option"), [(AiokafkaPublisher, {"compression_type": "gzip"}), (ConfluentPublisher, {"compression.codec": "gzip"})]
)
async def test_what_is_compressed_is_not_measured(make: Any, option: dict[str, str], kafka: str, topic: MakeTopic) -> None:
    name = topic(1, {"max.message.bytes": str(LIMIT)})
    publisher: Publisher = make(kafka, options=option)
    await publisher.start()
    limits = RecordLimits()
    limits.check(of_size(1000, name))
    await limits.learn(publisher)

    limits.check(of_size(LIMIT + 1, name))
    (delivery,) = await publisher.publish([sent(of_size(LIMIT + 1, name))])
    await publisher.close()

    assert isinstance(delivery, Delivered)


class Told:
    """Tells limits like a publisher."""

    def __init__(self, **limits: int | None) -> None:
        self.limits = limits
        self.asked: list[str] = []

    async def record_limit(self, topic: str) -> int | None:
        self.asked.append(topic)
        return self.limits[topic]


async def test_only_topics_that_are_published_to_are_asked_for_and_the_first_record_of_each_asks_at_once() -> None:
    limits, new, told = RecordLimits(), [], Told(t=1000, u=None)
    limits.on_new = lambda: new.append(True)
    await limits.learn(told)  # type: ignore[arg-type]
    for _ in range(3):
        limits.check(of_size(2000, "t"))
        limits.check(of_size(2000, "u"))
    await limits.learn(told)  # type: ignore[arg-type]

    assert len(new) == 2
    assert told.asked == ["t", "u"]
    with pytest.raises(RecordTooLarge):
        limits.check(of_size(2000, "t"))
    limits.check(of_size(2000, "u"))


async def test_a_limit_that_changes_counts_and_one_that_is_not_told_now_stays() -> None:
    limits = RecordLimits()
    limits.check(of_size(1000))
    await limits.learn(Told(t=1000))  # type: ignore[arg-type]
    await limits.learn(Told(t=None))  # type: ignore[arg-type]
    with pytest.raises(RecordTooLarge):
        limits.check(of_size(2000))
    await limits.learn(Told(t=2000))  # type: ignore[arg-type]

    limits.check(of_size(2000))


# In a process


@asynccontextmanager
async def publishing(dsn: str, kafka: str, name: str, *, relay: bool = True) -> AsyncIterator[Shop]:
    """A shop whose payments publish as many bytes as their note says, with its relay in the same process."""

    async def handler(request: Any, tx: Any) -> None:
        await insert(request, tx)
        tx.publish(name, key=request.account, value=b"x" * int(request.note or 1))

    app = declare(handler)
    runtime = app.runtime({"database": dsn, "kafka": kafka})
    async with open_shop(dsn, app=app) as shop:
        await runtime.open()
        relaying = await runtime.start_relay() if relay else None
        try:
            yield shop
        finally:
            if relaying is not None:
                await relaying.stop()


async def test_c9_a_handler_that_publishes_too_large_a_record_fails_alone_where_the_limit_is_known(
    dsn: str, kafka: str, topic: MakeTopic
) -> None:
    name = topic(1, {"max.message.bytes": str(LIMIT)})
    async with publishing(dsn, kafka, name) as shop:
        lane = await shop.lane()
        await lane.process(payment(0))
        await eventually(lambda: shop.app.runtime()._limits._limits.get(name) == LIMIT)
        outcomes = await lane.process(payment(1), payment(2, note="30000"), payment(3))
        await eventually(lambda: _empty(shop))

        assert outcomes[0] == outcomes[2] == Applied()
        assert isinstance(outcomes[1], Quarantined)
        assert f"RecordTooLarge: A record for {name} takes 301" in str(outcomes[1].error)
        assert await shop.payments() == ["p0", "p1", "p3"]
        assert await shop.rows("SELECT count(*) FROM idem.outbox_audit") == [0]


async def test_c9_code_beside_the_handlers_is_refused_too_large_a_record_where_the_limit_is_known(
    dsn: str, kafka: str, topic: MakeTopic, connection: asyncpg.Connection
) -> None:
    name = topic(1, {"max.message.bytes": str(LIMIT)})
    async with publishing(dsn, kafka, name) as shop:
        outbox = shop.app.outbox()
        async with connection.transaction():
            await outbox.add(connection, record(name, 1))
        await eventually(lambda: shop.app.runtime()._limits._limits.get(name) == LIMIT)
        async with connection.transaction():
            with pytest.raises(RecordTooLarge, match=f"A record for {name} takes"):
                await outbox.add(connection, [record(name, 2), record(name, 3)._replace(value=b"x" * LIMIT)])
            await outbox.add(connection, record(name, 4))
        await eventually(lambda: _empty(shop))
    messages = await read_topic(kafka, name)

    assert [message.value for message in messages] == [b"1", b"4"]


async def test_c9_without_a_relay_in_the_process_nothing_is_refused(dsn: str, kafka: str, topic: MakeTopic) -> None:
    name = topic(1, {"max.message.bytes": str(LIMIT)})
    async with publishing(dsn, kafka, name, relay=False) as shop:
        lane = await shop.lane()
        outcomes = await lane.process(payment(0), payment(1, note="30000"))

        assert outcomes == [Applied(), Applied()]


async def _empty(shop: Shop) -> bool:
    return await shop.rows("SELECT count(*) FROM idem.outbox") == [0]

"""What is particular to confluent-kafka: its ways to take part in a group, and its threads."""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from consumer_idem.errors import KafkaRefused, PartitionLost, Unreadable
from consumer_idem.kafka import _confluent_producer
from consumer_idem.kafka._confluent_settings import publisher_settings
from consumer_idem.kafka.confluent import ConfluentPublisher, ConfluentSubscriber
from consumer_idem.message import Message, Partition
from consumer_idem.ports import FailureKind, NotDelivered
from consumer_idem.testing.services.ports import free_port
from tests.conformance import kafka_raw
from tests.conformance.kafka_member import SHORT, Member, numbers, produce, until
from tests.conformance.test_publisher import kinds, record

SESSION = timedelta(seconds=3)
INCREMENTAL = [{"assignment": "cooperative-sticky"}, {"protocol": "consumer"}]

Join = Callable[..., Any]


@pytest.fixture
async def join(kafka: str) -> AsyncIterator[Join]:
    """Start a member of the test's group; all are closed with the test."""
    group = f"g-{uuid.uuid4().hex[:12]}"
    members: list[Member] = []

    async def join(topic: str, start_at: int | None = 0, **how: Any) -> Member:
        member = Member(ConfluentSubscriber(kafka, group, session_timeout=SESSION, **how), start_at)
        members.append(member)
        await member.subscriber.start([topic], member)
        return member

    yield join
    await asyncio.gather(*(member.subscriber.close() for member in members))


@pytest.mark.parametrize("how", INCREMENTAL)
async def test_partitions_that_stay_go_on_without_a_word(join: Join, kafka: str, topic: Any, how: Any) -> None:
    name = topic(2)
    first = await join(name, **how)
    await until(lambda: len(first.held) == 2)
    read: dict[Partition, list[int]] = {Partition(name, number): [] for number in range(2)}

    async def lane(partition: Partition) -> None:
        while len(read[partition]) < 4000:
            try:
                read[partition] += numbers(await first.subscriber.poll(partition, 20, SHORT))
            except PartitionLost:
                return

    lanes = [asyncio.create_task(lane(partition)) for partition in read]
    producing = asyncio.create_task(asyncio.to_thread(lambda: [produce(kafka, name, 4000, number, batch=100) for number in range(2)]))
    await until(lambda: all(read.values()))
    second = await join(name, **how)
    await until(lambda: bool(second.held))
    (kept,), (gone,) = first.held, second.held
    await producing
    await asyncio.wait_for(asyncio.gather(*lanes), 30)

    assert read[kept] == list(range(4000))
    assert read[gone] == list(range(len(read[gone])))
    assert not any(kept in partitions for partitions in first.heard("revoked"))
    assert sum(kept in partitions for partitions in first.heard("assigned")) == 1


async def test_partitions_that_stay_in_an_eager_group_are_told_again_and_wait_for_seek(join: Join, kafka: str, topic: Any) -> None:
    name = topic(2)
    for number in range(2):
        produce(kafka, name, 10, number)
    first = await join(name)
    await until(lambda: len(first.held) == 2)
    first.start_at = None
    await join(name)
    await until(lambda: len(first.held) == 1)
    (kept,) = first.held

    told = first.heard("assigned")
    silent = await first.silence(kept)
    await first.subscriber.seek(kept, 2)

    assert [kept in partitions for partitions in told] == [True, True]
    assert silent
    assert numbers(await first.read(kept, 8)) == list(range(2, 10))


async def test_a_static_member_finds_its_partitions_again(join: Join, topic: Any) -> None:
    name = topic(4)
    first, second = await join(name, instance_id="one"), await join(name, instance_id="two")
    await until(lambda: len(first.held) == len(second.held) == 2)
    held, told = frozenset(first.held), len(second.events)

    await first.subscriber.close()
    again = await join(name, instance_id="one")
    await until(lambda: len(again.held) == 2)

    assert frozenset(again.held) == held
    assert len(second.events) == told


async def test_a_second_member_with_the_same_instance_id_fences_the_first_until_it_is_gone(
    join: Join, kafka: str, topic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(kafka, name, 10)
    first = await join(name, instance_id="one")
    await first.holding(Partition(name, 0))
    second = await join(name, instance_id="one")
    await second.holding(Partition(name, 0))

    await until(lambda: bool(first.heard("lost")))

    with pytest.raises(PartitionLost):
        await first.subscriber.poll(Partition(name, 0), 1, SHORT)
    assert await second.subscriber.holds(Partition(name, 0))
    assert "gave up and joins the group anew; is its group.instance.id given twice?" in caplog.text
    await second.subscriber.close()
    await first.holding(Partition(name, 0))
    assert numbers(await first.read(Partition(name, 0), 10)) == list(range(10))


async def test_offsets_out_of_range_leave_other_partitions_alone(join: Join, kafka: str, topic: Any) -> None:
    name = topic(2)
    for number in range(2):
        produce(kafka, name, 3000, number)
    member = await join(name)
    await until(lambda: len(member.held) == 2)
    steady = asyncio.create_task(member.read(Partition(name, 1), 3000, limit=20))
    for offset in (10_000, 5, 20_000, 0):
        await member.subscriber.seek(Partition(name, 0), offset)
        await asyncio.sleep(0.05)

    assert numbers(await member.read(Partition(name, 0), 3000)) == list(range(3000))
    assert numbers(await steady) == list(range(3000))


async def test_many_seeks_leave_no_old_message(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    produce(kafka, name, 2000)
    member = await join(name)
    await member.holding(Partition(name, 0))

    for number in range(300):
        offset = number * 37 % 1900
        await member.subscriber.seek(Partition(name, 0), offset)
        if number % 3:
            messages = await member.subscriber.poll(Partition(name, 0), 50, timedelta(seconds=5))
            assert numbers(messages) == list(range(offset, offset + len(messages)))


async def test_a_full_buffer_pauses_its_partition_and_loses_nothing(join: Join, kafka: str, topic: Any) -> None:
    name = topic(2)
    produce(kafka, name, 30_000, 1)
    member = await join(name)
    await until(lambda: len(member.held) == 2)
    idle = member.subscriber._held[Partition(name, 1)]  # type: ignore[attr-defined]
    # The other partition's lane could run out of work at any time, so that the thread goes on fetching.
    await until(lambda: idle.paused)
    kept = len(idle._buffer)

    produce(kafka, name, 30_000, 0)
    first = numbers(await member.read(Partition(name, 0), 30_000))
    still_kept = len(idle._buffer)
    second = numbers(await member.read(Partition(name, 1), 30_000))

    assert kept == still_kept < 6000
    assert first == second == list(range(30_000))


async def test_a22_a_bad_header_name_is_noticed_in_code_that_runs_hot(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    await kafka_raw.produce_header_name(kafka, name, 2001, 2000, b"good")
    for _ in range(5):
        await kafka_raw.produce_header_name(kafka, name, 3, 1, b"\xff\xfe\xc3")
    member = await join(name)
    await member.holding(Partition(name, 0))
    messages: list[Message] = []
    unreadable: list[Unreadable] = []

    while not messages or messages[-1].offset < 2015:
        try:
            messages += await member.subscriber.poll(Partition(name, 0), 250, SHORT)
        except Unreadable as error:
            unreadable.append(error)
            await member.subscriber.seek(Partition(name, 0), error.next_offset)

    assert [error.offset for error in unreadable] == [2002, 2005, 2008, 2011, 2014]
    assert all(header for message in messages for header, _ in message.headers)


async def test_closing_ends_the_threads(kafka: str, topic: Any) -> None:
    name = topic()
    member, publisher = Member(ConfluentSubscriber(kafka, name, session_timeout=SESSION)), ConfluentPublisher(kafka)
    await publisher.start()
    await member.subscriber.start([name], member)
    await member.holding(Partition(name, 0))
    await asyncio.gather(member.subscriber.close(), publisher.close())

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("consumer-idem-") and thread.is_alive()]


async def test_after_a_fatal_error_another_producer_takes_over(kafka: str, topic: Any) -> None:
    name = topic()
    publisher = ConfluentPublisher(kafka)
    await publisher.start()
    thread = publisher._thread
    assert thread is not None
    await publisher.publish([record(name, b"0")])
    old = thread.producer

    thread._on_error(KafkaError(KafkaError._FATAL, "planted", fatal=True))
    await until(lambda: thread.producer is not old)
    after = await publisher.publish([record(name, b"1")])
    await publisher.close()

    assert kinds(after) == [None]


async def test_a_refusal_is_told_to_who_polls(join: Join, topic: Any) -> None:
    name = topic()
    member = await join(name)
    await member.holding(Partition(name, 0))
    thread = member.subscriber._thread  # type: ignore[attr-defined]

    thread._take_error(None, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "planted"))

    with pytest.raises(KafkaRefused, match="planted"):
        await member.subscriber.poll(Partition(name, 0), 1, SHORT)


async def test_c11_a_producer_that_has_lost_all_brokers_is_replaced(kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is one from the beginning: the first Producer knows no broker that there is."""
    monkeypatch.setattr(_confluent_producer, "_PATIENCE", 0.2)
    monkeypatch.setattr(_confluent_producer, "_REACH_WITHIN", 1.0)
    name, made, settings = topic(1), list[Producer](), publisher_settings(kafka, {})

    def make(given: dict[str, Any]) -> Producer:
        nobody = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
        made.append(Producer(given if made else {**given, **nobody}))
        return made[-1]

    monkeypatch.setattr(_confluent_producer, "Producer", make)
    thread = _confluent_producer.ProducerThread(settings)
    (lost,) = await asyncio.wait_for(thread.send(name, 0, [record(name)]), 20)
    (sent,) = await asyncio.wait_for(thread.send(name, 0, [record(name)]), 20)
    await thread.close()

    assert isinstance(lost, NotDelivered)
    assert lost.kind is FailureKind.RETRIABLE
    assert sent == 0
    assert len(made) == 2


async def test_c11_a_producer_is_kept_while_nobody_reaches_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was replaced would not know what it has sent already."""
    monkeypatch.setattr(_confluent_producer, "_PATIENCE", 0.1)
    monkeypatch.setattr(_confluent_producer, "_REACH_WITHIN", 0.1)
    looks, reaches = 0, _confluent_producer._reaches

    def count(client: Any) -> bool:
        nonlocal looks
        looks += 1
        return reaches(client)

    monkeypatch.setattr(_confluent_producer, "_reaches", count)
    monkeypatch.setattr(_confluent_producer, "_CLOSE_WITHIN", 0.1)
    thread = _confluent_producer.ProducerThread(publisher_settings(f"127.0.0.1:{free_port()}", {}))
    producer, sending = thread.producer, asyncio.create_task(thread.send("t", 0, [record("t")]))
    await until(lambda: looks >= 4)

    assert thread.producer is producer
    assert not sending.done()
    await thread.close()
    await sending

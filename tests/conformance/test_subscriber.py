"""What every Subscriber does with the messages of a partition, tried on Apache Kafka with every client."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer

from consumer_idem.message import Message, Partition
from consumer_idem.ports import Bounds
from tests.conformance.kafka_member import PATIENCE, SHORT, Join, Member, numbers, produce, until


async def test_every_message_comes_once_and_in_order(join: Join, kafka: str, topic: Any) -> None:
    name = topic(3)
    for partition in range(3):
        produce(kafka, name, 2000, partition)
    member = await join(name)
    await until(lambda: len(member.held) == 3)

    read = await asyncio.gather(*(member.read(Partition(name, number), 2000) for number in range(3)))

    assert [[message.offset for message in messages] for messages in read] == [list(range(2000))] * 3
    assert [numbers(messages) for messages in read] == [list(range(2000))] * 3


async def test_a_message_is_what_was_produced(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    sent_at = datetime.now(UTC).replace(microsecond=123000)
    headers = [("id", b"1"), ("id", b"2"), ("none", None), ("bytes", b"\xff\x00"), ("empty", b""), ("ключ", b"v")]
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(name, b"v", key=b"k", headers=headers, timestamp=round(sent_at.timestamp() * 1000))
    producer.produce(name, None, key=b"\xff")
    producer.produce(name, b"", key=None)
    producer.flush(10)
    member = await join(name)
    await member.holding(Partition(name, 0))

    full, tombstone, keyless = await member.read(Partition(name, 0), 3)

    assert full == Message(topic=name, partition=0, offset=0, key=b"k", value=b"v", headers=tuple(headers), time=sent_at)
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"\xff", None, ())
    assert (keyless.key, keyless.value) == (None, b"")


async def test_aborted_transactions_are_not_read(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"tx-{name}"})
    producer.init_transactions(30)
    for start in range(0, 200, 10):
        producer.begin_transaction()
        for number in range(start, start + 10):
            producer.produce(name, str(number).encode())
        producer.flush(10)
        producer.abort_transaction(10) if start % 20 else producer.commit_transaction(10)
    member = await join(name)
    await member.holding(Partition(name, 0))

    messages = await member.read(Partition(name, 0), 100, limit=7)

    assert numbers(messages) == [number for number in range(200) if number // 10 % 2 == 0]
    assert await member.silence(Partition(name, 0))


async def test_what_an_open_transaction_wrote_is_not_read(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    produce(kafka, name, 5)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"tx-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"5")
    producer.flush(10)
    member = await join(name)
    await member.holding(Partition(name, 0))

    before = await member.read(Partition(name, 0), 5)
    silent = await member.silence(Partition(name, 0))
    bounds = await member.subscriber.bounds(Partition(name, 0))
    producer.commit_transaction(10)
    after = await member.read(Partition(name, 0), 1)

    assert (numbers(before), silent, bounds) == ([0, 1, 2, 3, 4], True, Bounds(0, 5, 6))
    assert numbers(after) == [5]
    assert await member.subscriber.bounds(Partition(name, 0)) == Bounds(0, 7, 7)


async def test_what_is_no_message_is_read_past(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    partition = Partition(name, 0)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"tx-{name}"})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        produce_in(producer, name, 3)
        end(10)
    member = await join(name, start_at=None)
    await member.holding(partition)
    unplaced = await member.subscriber.read_to(partition)
    await member.subscriber.seek(partition, 0)
    placed = await member.subscriber.read_to(partition)
    await member.read(partition, 3)
    await until_read_to(member, partition, 8)
    producer.begin_transaction()
    produce_in(producer, name, 1)
    silent = await member.silence(partition)

    assert (unplaced, placed, silent) == (None, 0, True)
    assert await member.subscriber.read_to(partition) == 8
    assert await member.subscriber.bounds(partition) == Bounds(0, 8, 9)
    producer.abort_transaction(10)
    await until_read_to(member, partition, 10)
    await member.subscriber.seek(partition, 1)
    assert await member.subscriber.read_to(partition) == 1
    await member.read(partition, 2)
    await until_read_to(member, partition, 10)


async def test_what_is_read_to_stays_before_what_was_not_polled(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    produce(kafka, name, 100)
    member = await join(name)
    await member.holding(Partition(name, 0))

    assert len(await member.subscriber.poll(Partition(name, 0), 40, timedelta(seconds=10))) == 40
    assert await member.subscriber.read_to(Partition(name, 0)) == 40


def produce_in(producer: Producer, topic: str, count: int) -> None:
    """Write a few messages in the producer's open transaction."""
    for number in range(count):
        producer.produce(topic, str(number).encode())
    producer.flush(10)


async def until_read_to(member: Member, partition: Partition, offset: int) -> None:
    """Poll, without a message, until everything before `offset` is read."""
    end = time.monotonic() + PATIENCE
    while (read_to := await member.subscriber.read_to(partition)) != offset:
        assert time.monotonic() < end, f"read to {read_to}"
        assert not await member.subscriber.poll(partition, 10, SHORT)


async def test_a20_compacted_gaps_are_passed(join: Join, kafka: str, topic: Any) -> None:
    name = topic(1, {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100"})
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
    for number in range(1000):
        producer.produce(name, str(number).encode(), key=str(number % 10))
    producer.flush(10)
    member = await join(name)
    await member.holding(Partition(name, 0))

    kept: list[Message] = []
    end = time.monotonic() + 60
    while not kept or len(kept) > 500:
        assert time.monotonic() < end
        produce(kafka, name, 1)  # rolls the segment
        kept = await read_through(member, Partition(name, 0))

    offsets = [message.offset for message in kept]
    assert offsets == sorted(set(offsets))
    assert {message.key for message in kept if message.key != b"k"} == {str(number).encode() for number in range(10)}


async def read_through(member: Member, partition: Partition) -> list[Message]:
    """Return all from the beginning to where the log ends now."""
    end, patience = (await member.subscriber.bounds(partition)).end, time.monotonic() + PATIENCE
    await member.subscriber.seek(partition, 0)
    messages: list[Message] = []
    while (await member.subscriber.read_to(partition) or 0) < end:
        assert time.monotonic() < patience, f"{len(messages)} messages came"
        messages += await member.subscriber.poll(partition, 100, SHORT)
    return messages


async def test_nothing_comes_before_seek(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    produce(kafka, name, 10)
    member = await join(name, start_at=None)
    await member.holding(Partition(name, 0))
    assert await member.silence(Partition(name, 0))

    await member.subscriber.seek(Partition(name, 0), 4)

    assert numbers(await member.read(Partition(name, 0), 6)) == list(range(4, 10))


async def test_seek_forgets_what_was_fetched(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    produce(kafka, name, 1000)
    member = await join(name)
    await member.holding(Partition(name, 0))
    first = await member.subscriber.poll(Partition(name, 0), 10, timedelta(seconds=10))
    assert first

    await member.subscriber.seek(Partition(name, 0), 5)
    back = await member.read(Partition(name, 0), 20, limit=20)
    await member.subscriber.seek(Partition(name, 0), 900)
    forward = await member.read(Partition(name, 0), 100)

    assert numbers(back) == list(range(5, 25))
    assert numbers(forward) == list(range(900, 1000))


async def test_a_poll_waits_for_a_message_and_not_longer(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    member = await join(name)
    await member.holding(Partition(name, 0))
    began = time.monotonic()
    assert not await member.subscriber.poll(Partition(name, 0), 10, timedelta(seconds=0.5))
    waited = time.monotonic() - began

    waiting = asyncio.create_task(member.subscriber.poll(Partition(name, 0), 10, timedelta(seconds=20)))
    await asyncio.to_thread(produce, kafka, name, 1)

    assert numbers(await asyncio.wait_for(waiting, 15)) == [0]
    assert 0.4 < waited < 4


async def test_a_cancelled_poll_loses_nothing(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    member = await join(name)
    await member.holding(Partition(name, 0))
    read: list[int] = []
    cancelled = 0
    enough = threading.Event()

    def feed() -> int:
        count = 0
        while count < 1000 or not enough.is_set():
            produce(kafka, name, 1, first=count)
            count += 1
        return count

    producing = asyncio.create_task(asyncio.to_thread(feed))

    while not producing.done() or read[-1:] != [producing.result() - 1]:
        poll = asyncio.create_task(member.subscriber.poll(Partition(name, 0), 30, SHORT))
        # Cancelled in the very turn of the loop in which something has arrived, or a few turns before.
        for _ in range(cancelled % 40):
            await asyncio.sleep(0)
        poll.cancel()
        try:
            read += numbers(await poll)
        except asyncio.CancelledError:
            cancelled += 1
        if cancelled > 500:
            enough.set()

    assert read == list(range(await producing))


async def test_a_partition_that_nobody_polls_holds_up_no_other(join: Join, kafka: str, topic: Any) -> None:
    name = topic(2)
    for partition in range(2):
        produce(kafka, name, 20_000, partition)
    member = await join(name)
    await until(lambda: len(member.held) == 2)

    polled = await member.read(Partition(name, 0), 20_000)
    later = await member.read(Partition(name, 1), 20_000)

    assert numbers(polled) == numbers(later) == list(range(20_000))


async def test_a_slow_partition_does_not_delay_the_others(join: Join, kafka: str, topic: Any) -> None:
    name = topic(2)
    produce(kafka, name, 20_000, 0)
    member = await join(name)
    await until(lambda: len(member.held) == 2)
    done = asyncio.Event()

    async def crawl() -> int:
        read = 0
        while not done.is_set():
            read += len(await member.subscriber.poll(Partition(name, 0), 100, SHORT))
            await asyncio.sleep(0.02)
        return read

    crawling = asyncio.create_task(crawl())
    delays: list[float] = []
    for number in range(30):
        waiting = asyncio.create_task(member.subscriber.poll(Partition(name, 1), 10, timedelta(seconds=10)))
        await asyncio.to_thread(produce, kafka, name, 1, 1, number)
        acknowledged = time.monotonic()
        assert numbers(await waiting) == [number]
        delays.append(time.monotonic() - acknowledged)
    done.set()

    assert await crawling > 100
    assert sorted(delays)[len(delays) // 2] < 0.15

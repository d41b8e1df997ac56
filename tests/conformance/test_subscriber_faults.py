"""What every Subscriber does when Kafka, the network or the data is broken."""

import asyncio
import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import pytest

from consumer_idem.errors import KafkaUnavailable, OffsetCommitFailed, PartitionLost, Unreadable
from consumer_idem.message import Message, Partition
from consumer_idem.ports import Bounds
from consumer_idem.testing import KafkaApi, KafkaBroker, LostKafka, TcpProxy
from tests.conformance import kafka_raw
from tests.conformance.conftest import SESSION, Connect
from tests.conformance.kafka_member import PATIENCE, SHORT, Join, Member, numbers, produce, produce_anew, until


async def read_all(member: Member, partition: Partition, last: int) -> tuple[list[Message], list[Unreadable]]:
    """Read up to the number `last`, passing what cannot be read as a lane does."""
    messages: list[Message] = []
    unreadable: list[Unreadable] = []
    end = time.monotonic() + PATIENCE
    while not messages or numbers(messages)[-1] != last:
        assert time.monotonic() < end, f"read {numbers(messages)[-3:]}, {unreadable}"
        try:
            messages += await member.subscriber.poll(partition, 40, SHORT)
        except Unreadable as error:
            unreadable.append(error)
            await member.subscriber.seek(partition, error.next_offset)
    return messages, unreadable


async def answered(member: Member, partition: Partition) -> Bounds:
    """Ask for the bounds until somebody answers."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await member.subscriber.bounds(partition)
            except KafkaUnavailable:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("change", [kafka_raw.flip, kafka_raw.unknown_codec, kafka_raw.not_compressed])
async def test_a21_a_batch_that_cannot_be_read_is_told_and_passed(join: Join, broker: Any, topic: Any, change: Any) -> None:
    name = topic()
    if not isinstance(broker, KafkaBroker):
        pytest.skip("the broker's files are out of reach")
    produce(broker.bootstrap, name, 200, batch=20)
    start, behind = kafka_raw.damage(broker, name, 100, change)
    member = await join(name)
    await member.holding(Partition(name, 0))

    messages, unreadable = await read_all(member, Partition(name, 0), 199)

    assert numbers(messages) == [number for number in range(200) if not start <= number < behind]
    assert (unreadable[0].offset, unreadable[-1].next_offset) == (start, behind)
    assert [error.next_offset for error in unreadable[:-1]] == [error.offset for error in unreadable[1:]]


async def test_a22_a_header_name_that_is_not_utf8_is_told_and_passed_alone(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    await kafka_raw.produce_header_name(kafka, name, 30, 17, b"\xff\xfe\xc3")
    member = await join(name)
    await member.holding(Partition(name, 0))

    messages, unreadable = await read_all(member, Partition(name, 0), 29)

    assert numbers(messages) == [number for number in range(30) if number != 17]
    assert [(error.offset, error.next_offset) for error in unreadable] == [(17, 18)]
    assert b"17" in unreadable[0].raw


async def test_what_cannot_be_read_is_told_again_until_it_is_passed(join: Join, kafka: str, topic: Any) -> None:
    name = topic()
    await kafka_raw.produce_header_name(kafka, name, 5, 0, b"\xff\xfe\xc3")
    member = await join(name)
    await member.holding(Partition(name, 0))

    for _ in range(3):
        with pytest.raises(Unreadable, match="UTF-8"):
            await member.read(Partition(name, 0), 5)

    await member.subscriber.seek(Partition(name, 0), 1)
    assert numbers(await member.read(Partition(name, 0), 4)) == [1, 2, 3, 4]


async def test_a23_a_broker_that_was_killed_is_read_again_when_it_is_back(join: Join, mortal: Any, new_topic: Any, patience: None) -> None:
    name = new_topic(mortal)
    partition = Partition(name, 0)
    produce(mortal.bootstrap, name, 500)
    member = await join(name, bootstrap=mortal.bootstrap)
    await member.holding(partition)
    before = await member.read(partition, 200, limit=50)
    await member.subscriber.commit({partition: 200})
    assert await member.subscriber.bounds(partition) == Bounds(0, 500, 500)
    await asyncio.to_thread(mortal.kill9)
    commit, committed = member.subscriber.commit({partition: 201}), member.subscriber.committed(partition)
    errors = await asyncio.gather(commit, committed, return_exceptions=True)
    await asyncio.to_thread(mortal.start)
    produce(mortal.bootstrap, name, 500, first=500)

    after: list[Message] = []
    end = time.monotonic() + PATIENCE
    while len(after) < 800:
        assert time.monotonic() < end, numbers(after)[-3:]
        try:
            after += await member.subscriber.poll(partition, 50, SHORT)
        except PartitionLost:
            # The session may have run out; then the listener starts at the beginning again.
            await until(lambda: bool(member.held))
            await member.subscriber.seek(partition, 200 + len(after))
        except KafkaUnavailable:
            continue

    assert [type(error) for error in errors] == [OffsetCommitFailed, KafkaUnavailable]
    assert numbers(before) == list(range(200))
    assert numbers(after) == list(range(200, 1000))
    # It leads again, but under another epoch.
    assert await answered(member, partition) == Bounds(0, 1000, 1000)


async def test_a13_messages_tell_the_epoch_of_the_leader_that_wrote_them_after_a_cut_too(
    join: Join, mortal: Any, new_topic: Any, patience: None
) -> None:
    name = new_topic(mortal)
    partition = Partition(name, 0)
    produce(mortal.bootstrap, name, 20, batch=10)
    await asyncio.to_thread(mortal.kill9)
    kafka_raw.cut(mortal, name, 10)
    await asyncio.to_thread(mortal.start)
    produce_anew()
    produce(mortal.bootstrap, name, 30, first=100, batch=10)
    member = await join(name, bootstrap=mortal.bootstrap)
    await member.holding(partition)
    messages = await member.read(partition, 40, limit=17)
    epochs = [message.leader_epoch for message in messages]

    assert numbers(messages) == [*range(10), *range(100, 130)]
    assert epochs == [epochs[0]] * 10 + [epochs[-1]] * 30
    assert epochs[0] is not None
    assert epochs[-1] is not None
    assert epochs[0] < epochs[-1]


async def test_a6_partitions_are_lost_when_the_session_has_run_out(connect: Connect, proxied: Any, topic: Any, group: str) -> None:
    name = topic()
    partition = Partition(name, 0)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port) as proxy:
        cut_off, other = Member(connect(proxy.bootstrap, group)), Member(connect(proxied.bootstrap, group))
        await cut_off.subscriber.start([name], cut_off)
        await cut_off.holding(partition)
        await cut_off.subscriber.commit({partition: 5})
        waiting = asyncio.create_task(cut_off.subscriber.poll(partition, 1, SESSION * 20))
        proxy.hold()
        judged = asyncio.Event()

        async def keep(_: Collection[Partition]) -> None:
            await judged.wait()

        # Once it is back, the one that was cut off may be given the partition again: not before it was seen without.
        other.on_revoked = keep
        await other.subscriber.start([name], other)
        await other.holding(partition)
        await other.subscriber.commit({partition: 9})

        proxy.release()
        await until(lambda: bool(cut_off.heard("lost")))

        with pytest.raises(PartitionLost):
            await waiting
        with pytest.raises(OffsetCommitFailed):
            await cut_off.subscriber.commit({partition: 6})
        assert not await cut_off.subscriber.holds(partition)
        assert cut_off.heard("revoked") == []
        assert await other.subscriber.committed(partition) == 9
        judged.set()
        await other.subscriber.close()
        await cut_off.holding(partition)
        assert await cut_off.subscriber.committed(partition) == 9
        await cut_off.subscriber.close()


async def test_a_leader_that_does_not_answer_is_no_offset(connect: Connect, proxied: Any, topic: Any, group: str, patience: None) -> None:
    name = topic()
    partition = Partition(name, 0)
    produce(proxied.bootstrap, name, 10)
    lost = LostKafka(KafkaApi.LIST_OFFSETS)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port, triggers=[lost]) as proxy:
        member = Member(connect(proxy.bootstrap, group))
        await member.subscriber.start([name], member)
        await member.holding(partition)
        lost.arm(times=10_000)
        with pytest.raises(KafkaUnavailable):
            await member.subscriber.bounds(partition)
        with pytest.raises(KafkaUnavailable):
            await member.subscriber.offset_at(partition, datetime(2020, 1, 1, tzinfo=UTC))
        lost.disarm()

        assert lost.fired
        assert await answered(member, partition) == Bounds(0, 10, 10)
        await member.subscriber.close()


@pytest.mark.parametrize("how", ["hold", "refuse"])
async def test_closing_ends_in_time_when_nobody_answers(
    connect: Connect, proxied: Any, topic: Any, group: str, patience: None, how: str
) -> None:
    name = topic()
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port) as proxy:
        member = Member(connect(proxy.bootstrap, group))
        await member.subscriber.start([name], member)
        await member.holding(Partition(name, 0))
        if how == "hold":
            proxy.hold()
        else:
            proxy.refuse()
            proxy.cut()
            await asyncio.sleep(0.3)
        began = time.monotonic()
        await member.subscriber.close()

    assert time.monotonic() - began < 10
    assert member.heard("revoked") == [frozenset({Partition(name, 0)})]


async def test_connections_that_are_cut_lose_and_double_nothing(connect: Connect, proxied: Any, topic: Any, group: str) -> None:
    name = topic(2)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port) as proxy:
        member = Member(connect(proxy.bootstrap, group))
        await member.subscriber.start([name], member)
        await until(lambda: len(member.held) == 2)
        read: dict[int, list[int]] = {0: [], 1: []}

        async def lane(number: int) -> None:
            while len(read[number]) < 3000:
                try:
                    read[number] += numbers(await member.subscriber.poll(Partition(name, number), 25, SHORT))
                except KafkaUnavailable:
                    await asyncio.sleep(0.01)

        lanes = asyncio.gather(lane(0), lane(1))
        for first in range(0, 3000, 300):
            for number in range(2):
                await asyncio.to_thread(produce, proxied.bootstrap, name, 300, number, first)
            proxy.cut()
        await asyncio.wait_for(lanes, PATIENCE)
        await member.subscriber.close()

    assert read == {0: list(range(3000)), 1: list(range(3000))}


async def test_g6_what_nobody_polls_is_not_kept_in_memory(join: Join, kafka: str, topic: Any) -> None:
    import psutil

    name = topic(2)
    body = b"1" * 10_000
    await asyncio.to_thread(_produce_bytes, kafka, name, body, 8000)
    member = await join(name)
    await until(lambda: len(member.held) == 2)
    process = psutil.Process()
    before = process.memory_info().rss

    count = highest = 0
    while count < 8000:
        count += len(await member.subscriber.poll(Partition(name, 0), 250, SHORT))
        highest = max(highest, process.memory_info().rss - before)

    assert highest < 60_000_000


def _produce_bytes(bootstrap: str, topic: str, value: bytes, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.kbytes": 1_000_000})
    for number in range(2 * count):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(60) == 0

"""How every Subscriber behaves in its group: assignments, rebalances, commits, the end."""

import asyncio
import contextlib
import logging
import random
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, TopicCollection

from consumer_idem.errors import KafkaUnavailable, OffsetCommitFailed, OffsetOutOfRange, PartitionLost, TopicUnknown
from consumer_idem.message import Partition
from consumer_idem.ports import Bounds
from tests.conformance import conftest
from tests.conformance.conftest import IN_EVERY_WAY, Connect
from tests.conformance.kafka_member import SHORT, Join, Member, numbers, produce, until


@pytest.fixture(params=IN_EVERY_WAY)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Every client, in every way in which it can take part in a group."""
    return IN_EVERY_WAY[request.param]


async def test_an_unknown_topic_is_refused_and_not_created(connect: Connect, kafka: str, kafka_admin: Any, group: str, topic: Any) -> None:
    subscriber = connect(kafka, group)

    with pytest.raises(TopicUnknown, match="no-such-topic"):
        await subscriber.start([topic(), "no-such-topic"], Member(subscriber))

    assert "no-such-topic" not in kafka_admin.list_topics(timeout=10).topics


async def test_no_broker_is_an_error_in_bounded_time(connect: Connect, group: str, patience: None) -> None:
    subscriber = connect("127.0.0.1:1", group)
    began = time.monotonic()

    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:1"):
        await subscriber.start(["t"], Member(subscriber))

    assert time.monotonic() - began < 8


async def test_offsets_are_committed_and_read(join: Join, kafka: str, topic: Any) -> None:
    name = topic(2)
    member = await join(name)
    await until(lambda: len(member.held) == 2)

    await member.subscriber.commit({Partition(name, 0): 7})

    assert await member.subscriber.committed(Partition(name, 0)) == 7
    assert await member.subscriber.committed(Partition(name, 1)) is None


async def test_two_members_share_a_topic(join: Join, kafka: str, topic: Any) -> None:
    name = topic(4)
    first = await join(name)
    await until(lambda: len(first.held) == 4)
    second = await join(name)
    await until(lambda: len(first.held) == len(second.held) == 2 and not first.held & second.held)
    for partition in range(4):
        produce(kafka, name, 300, partition)

    read = await asyncio.gather(*(member.read(partition, 300) for member in (first, second) for partition in member.held))

    assert [numbers(messages) for messages in read] == [list(range(300))] * 4
    for member, other in ((first, second), (second, first)):
        for partition in other.held:
            with pytest.raises(PartitionLost):
                await member.subscriber.poll(partition, 1, SHORT)


async def test_the_next_owner_waits_for_the_listener(join: Join, topic: Any) -> None:
    name = topic(2)
    first = await join(name)
    await until(lambda: len(first.held) == 2)
    released = asyncio.Event()
    order: list[str] = []

    async def drain(partitions: Collection[Partition]) -> None:
        await first.subscriber.commit(dict.fromkeys(partitions, 3))
        await asyncio.sleep(0.5)
        order.append("drained")
        released.set()

    first.on_revoked = drain

    async def arrive(_: Collection[Partition]) -> None:
        order.append("assigned")

    def listen(member: Member) -> None:
        member.on_assigned = arrive

    second = await join(name, prepare=listen)
    await until(lambda: bool(second.held))

    assert released.is_set()
    assert order[0] == "drained"
    assert [await second.subscriber.committed(partition) for partition in second.held] == [3]


async def test_a_waiting_poll_ends_when_the_partition_is_revoked(join: Join, topic: Any) -> None:
    name = topic(1)
    first = await join(name)
    await first.holding(Partition(name, 0))
    waiting = asyncio.create_task(first.subscriber.poll(Partition(name, 0), 1, timedelta(seconds=60)))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    ended_first: list[bool] = []

    async def look(_: Collection[Partition]) -> None:
        await asyncio.wait({waiting}, timeout=1)
        ended_first.append(waiting.done())

    first.on_revoked = look
    await first.subscriber.close()

    with pytest.raises(PartitionLost):
        await waiting
    assert ended_first == [True]


async def test_a_slow_listener_does_not_hold_up_the_group_for_ever(join: Join, topic: Any, caplog: pytest.LogCaptureFixture) -> None:
    name = topic(2)
    first = await join(name)
    await until(lambda: len(first.held) == 2)
    cancelled = asyncio.Event()

    async def hang(_: Collection[Partition]) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    first.on_revoked = hang
    second = await join(name)
    await until(lambda: bool(second.held))

    assert cancelled.is_set()
    assert "the listener used up its budget" in caplog.text
    await until(lambda: len(first.held) == 1)


async def test_a_listener_that_fails_is_logged_and_the_client_goes_on(
    join: Join, kafka: str, topic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(2)
    first = await join(name)
    await until(lambda: len(first.held) == 2)

    async def fail(_: Collection[Partition]) -> None:
        raise ValueError("planted")

    first.on_revoked = fail
    second = await join(name)
    await until(lambda: len(first.held) == len(second.held) == 1)
    produce(kafka, name, 5, next(iter(first.held)).number)

    assert len(await first.read(next(iter(first.held)), 5)) == 5
    failures = [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
    assert any("planted" in str(record.exc_info[1]) for record in failures if record.exc_info)


async def test_a_commit_for_a_revoked_partition_fails(join: Join, topic: Any) -> None:
    name = topic(2)
    first = await join(name)
    await until(lambda: len(first.held) == 2)
    second = await join(name)
    await until(lambda: len(first.held) == len(second.held) == 1)
    (kept,), (gone,) = first.held, second.held
    await second.subscriber.commit({gone: 8})

    with pytest.raises(OffsetCommitFailed):
        await asyncio.wait_for(first.subscriber.commit({gone: 5, kept: 6}), 10)

    assert await second.subscriber.committed(gone) == 8
    assert await first.subscriber.committed(kept) == 6


async def test_a8_commits_during_rebalances_end_in_time(join: Join, topic: Any) -> None:
    name = topic(4)
    first = await join(name)
    await until(lambda: len(first.held) == 4)
    longest = 0.0
    done = asyncio.Event()

    async def commit_all_the_time() -> None:
        nonlocal longest
        while not done.is_set():
            began = time.monotonic()
            try:
                await first.subscriber.commit({Partition(name, number): 1 for number in range(4)})
            except OffsetCommitFailed:
                await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0)

    committing = asyncio.create_task(commit_all_the_time())
    for _ in range(3):
        second = await join(name)
        await until(lambda second=second: bool(second.held))  # type: ignore[misc]
        await second.subscriber.close()
        await until(lambda: len(first.held) == 4)
    done.set()
    await committing

    assert longest < 9


@pytest.mark.timeout(120)
async def test_nothing_is_missing_behind_a_seek_while_members_come_and_go(join: Join, kafka: str, topic: Any) -> None:
    """What was fetched for an earlier place, kept behind a seek, would hide all that lies between."""
    name, chance, most = topic(2), random.Random(4711), 6000
    for number in range(2):
        await asyncio.to_thread(produce, kafka, name, most, number)
    first = await join(name, start_at=None)
    seeks: Counter[int] = Counter()
    over = asyncio.Event()

    async def read_from_anywhere(partition: Partition) -> None:
        start = chance.randrange(most - 1000)
        await first.subscriber.seek(partition, start)
        seeks[partition.number] += 1
        expected = start
        for _ in range(chance.randrange(1, 6)):
            found = numbers(await first.subscriber.poll(partition, chance.choice((1, 50, 500)), chance.choice((SHORT, timedelta(0)))))
            assert found == list(range(expected, expected + len(found))), start
            expected += len(found)

    async def read(partition: Partition) -> None:
        while seeks[partition.number] < 40 or not over.is_set():
            with contextlib.suppress(PartitionLost):
                if partition in first.held:
                    await read_from_anywhere(partition)
            await asyncio.sleep(0.02)

    reading = asyncio.gather(*(read(Partition(name, number)) for number in range(2)))
    for _ in range(5):
        second = await join(name)
        await asyncio.sleep(chance.random())
        await second.subscriber.close()
    over.set()
    await reading


async def test_a_group_that_is_stable_holds(join: Join, topic: Any) -> None:
    name = topic(2)
    first = await join(name)
    await until(lambda: len(first.held) == 2)

    assert await first.subscriber.holds(Partition(name, 0))
    assert not await first.subscriber.holds(Partition(name, 7))


async def test_closing_leaves_the_group_at_once(join: Join, topic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever only stayed away would be a member for ten seconds, or for the broker's six.
    monkeypatch.setattr(conftest, "SESSION", timedelta(seconds=10))
    name = topic(2)
    first = await join(name)
    second = await join(name)
    await until(lambda: len(first.held) == len(second.held) == 1)
    held = frozenset(first.held)

    async def commit(partitions: Collection[Partition]) -> None:
        await first.subscriber.commit(dict.fromkeys(partitions, 5))

    first.on_revoked = commit
    began = time.monotonic()

    await first.subscriber.close()
    await until(lambda: len(second.held) == 2)

    assert time.monotonic() - began < 5
    assert await second.subscriber.committed(next(iter(held))) == 5
    assert first.events[-1] == ("revoked", held)
    with pytest.raises(PartitionLost):
        await first.subscriber.poll(next(iter(held)), 1, SHORT)
    await first.subscriber.close()


async def test_an_offset_out_of_the_log_is_told_and_left_by_seek(join: Join, kafka: str, kafka_admin: Any, topic: Any) -> None:
    from confluent_kafka import TopicPartition

    name = topic()
    produce(kafka, name, 100)
    kafka_admin.delete_records([TopicPartition(name, 0, 40)])[TopicPartition(name, 0, 40)].result(10)
    member = await join(name)
    await member.holding(Partition(name, 0))

    for wrong in (0, 1000):
        await member.subscriber.seek(Partition(name, 0), wrong)
        with pytest.raises(OffsetOutOfRange):
            await member.read(Partition(name, 0), 1)

    await member.subscriber.seek(Partition(name, 0), 40)
    assert numbers(await member.read(Partition(name, 0), 60)) == list(range(40, 100))


async def test_bounds_and_times_are_looked_up(join: Join, kafka: str, topic: Any) -> None:
    name = topic(2)
    producer = Producer({"bootstrap.servers": kafka})
    now = datetime.now(UTC).replace(microsecond=0)
    for second in range(10):
        producer.produce(name, b"v", partition=0, timestamp=round((now + timedelta(seconds=second - 20)).timestamp() * 1000))
    producer.flush(10)
    member = await join(name)
    await until(lambda: len(member.held) == 2)
    look_up = member.subscriber.offset_at

    assert await member.subscriber.bounds(Partition(name, 0)) == Bounds(0, 10, 10)
    assert await member.subscriber.bounds(Partition(name, 1)) == Bounds(0, 0, 0)
    assert await look_up(Partition(name, 0), now - timedelta(seconds=15)) == 5
    assert await look_up(Partition(name, 0), now - timedelta(seconds=15, microseconds=-1)) == 6
    assert await look_up(Partition(name, 0), datetime(1960, 1, 1, tzinfo=UTC)) == 0
    assert await look_up(Partition(name, 0), now) is None
    assert await look_up(Partition(name, 1), now - timedelta(seconds=15)) is None


async def test_a12_a_topic_that_is_made_again_has_another_id(join: Join, kafka_admin: Any, topic: Any) -> None:
    name = topic()
    member = await join(name)
    before = await member.subscriber.topic_id(name)
    told = kafka_admin.describe_topics(TopicCollection([name]))[name].result(10).topic_id
    kafka_admin.delete_topics([name])[name].result(10)
    await until(lambda: name not in kafka_admin.list_topics(timeout=10).topics)
    topic(name=name)

    after = await member.subscriber.topic_id(name)

    assert before is not None
    assert after is not None
    assert b64encode(before.bytes).decode() == f"{told}=="
    assert before != after

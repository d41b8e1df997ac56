"""Worker processes that are stopped, killed, asked to end, or outlived by their database."""

import asyncio
import time

import pytest

from tests.scenarios.conftest import Stage

BOTH = pytest.mark.parametrize("client", ["aiokafka", "confluent"])


def payments(count: int, first: int = 0, **fields: object) -> list[dict[str, object]]:
    return [{"payment_id": f"p{number}", **fields} for number in range(first, first + count)]


def ids(count: int) -> list[str]:
    return sorted(f"p{number}" for number in range(count))


@BOTH
async def test_a3_a_stopped_worker_does_not_block_its_successor_and_changes_nothing_when_it_wakes(stage: Stage, client: str):
    stage.client = client
    stage.produce(payments(40))
    stopped = await stage.worker(CONSUMER_IDEM_FAILPOINTS="seal.after=stop@2")
    await stopped.until_stopped()
    successor = await stage.worker()
    # How long it takes to start, and to be given the partitions, is no matter.
    await successor.line("lane starts", timeout=60)
    began = time.monotonic()
    await stage.until_consumed(40)
    took = time.monotonic() - began
    before = await stage.rows("SELECT next_offset, epoch FROM idem.progress ORDER BY partition")
    stopped.go_on()
    await stopped.line("revoked|lost|fenced|assigned|connection|unavailable")
    stage.produce(payments(20, 40))
    await stage.until_consumed(60)

    assert took < 12, "the successor had to wait for the stopped worker's transaction"
    assert len(before) == 4
    assert await stage.effects() == ids(60)
    assert await stage.rows("SELECT count(*) FROM idem.outbox") == [60]


async def test_a6_all_workers_stopped_past_their_session_lose_and_double_nothing(stage: Stage):
    workers = [await stage.worker(HANDLER="awaiting") for _ in range(2)]
    stage.produce(payments(200))
    await stage.until("SELECT count(*) > 0 FROM payment", True)
    for worker in workers:
        await worker.stop()
    await asyncio.sleep(4)  # longer than the session time-out: this pause is the fault itself
    for worker in workers:
        worker.go_on()
    stage.produce(payments(50, 200))
    await stage.until_consumed(250)

    assert await stage.effects() == ids(250)


async def test_a25_a_message_that_kills_the_process_is_quarantined_alone(stage: Stage):
    stage.env |= {"CONSUMER_IDEM_BATCH_SIZE": "20"}
    values = payments(40)
    values[13]["note"] = "kill"
    stage.produce(values, partition=lambda _: 0)
    for _ in range(8):
        worker = await stage.worker()
        done = asyncio.create_task(worker.wait(timeout=60))
        settled = asyncio.create_task(stage.until_consumed(40))
        await asyncio.wait({done, settled}, return_when=asyncio.FIRST_COMPLETED)
        if settled.done():
            settled.result()
            done.cancel()
            break
        settled.cancel()
        assert done.result() == -9, worker.tail()

    assert await stage.effects() == sorted(set(ids(40)) - {"p13"})
    assert await stage.rows("SELECT reason, message_id FROM idem.quarantine") == [("crashed", "p13")]
    assert len(stage.workers) == 1 + 3 + 1
    assert await stage.rows("SELECT count(*) FROM idem.attempt") == [0]


@BOTH
async def test_g1_a_worker_that_is_asked_to_end_finishes_what_is_open_and_commits_its_offsets(stage: Stage, client: str):
    stage.client = client
    stage.produce(payments(400))
    worker = await stage.worker(CONSUMER_IDEM_BATCH_SIZE="10")
    await stage.until("SELECT count(*) > 20 FROM payment", True)
    worker.terminate()
    assert await worker.wait() == 0, worker.tail()
    assert await stage.rows("SELECT DISTINCT owner::text FROM idem.progress") == [None]
    assert committed(stage) == dict(await stage.rows("SELECT partition, next_offset FROM idem.progress"))
    await stage.worker()
    await stage.until_consumed(400)

    assert await stage.effects() == ids(400)


def committed(stage: Stage) -> dict[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": stage.kafka, "group.id": "shop"})
    found = consumer.committed([TopicPartition(stage.topic, number) for number in range(stage.partitions)], timeout=10)
    consumer.close()
    return {partition.partition: partition.offset for partition in found if partition.offset >= 0}


@BOTH
async def test_a14_a_database_set_back_under_a_live_worker_gets_every_effect_again(stage: Stage, client: str):
    stage.client = client
    stage.produce(payments(100))
    worker = await stage.worker(CONSUMER_IDEM_BATCH_SIZE="5")
    await stage.until_consumed(100)
    async with stage.connection.transaction():
        await stage.rows("UPDATE idem.progress SET next_offset = 10")
        await stage.rows('DELETE FROM payment WHERE id IN (SELECT message_id FROM idem.inbox WHERE "offset" >= 10)')
        await stage.rows('DELETE FROM idem.inbox WHERE "offset" >= 10')
    stage.produce(payments(20, 100))
    await worker.line("older than this worker saw")
    await stage.until_consumed(120)

    assert await stage.effects() == ids(120)


async def test_a14_a_database_that_lost_its_progress_rows_under_a_live_worker_gets_every_effect_again(stage: Stage):
    stage.produce(payments(100))
    await stage.worker()
    await stage.until_consumed(100)
    await stage.rows("TRUNCATE idem.progress, idem.inbox, payment")
    stage.produce(payments(20, 100))
    await stage.until("SELECT count(*) FROM payment", 120)

    assert await stage.effects() == ids(120)


@BOTH
async def test_a12_a_topic_made_anew_while_the_worker_is_down_is_read_from_its_start(stage: Stage, client: str):
    stage.client = client
    from confluent_kafka.admin import AdminClient

    from tests.conftest import make_topic

    stage.produce(payments(40))
    worker = await stage.worker()
    await stage.until_consumed(40)
    worker.terminate()
    await worker.wait()
    admin = AdminClient({"bootstrap.servers": stage.kafka})
    admin.delete_topics([stage.topic])[stage.topic].result(30)
    async with asyncio.timeout(30):
        while stage.topic in admin.list_topics(timeout=10).topics:
            await asyncio.sleep(0.1)
    make_topic(admin, stage.topic, 4, {})
    stage.produce(payments(60, 40))
    await stage.worker()
    await stage.until("SELECT count(*) FROM payment", 100)

    assert await stage.effects() == ids(100)


@BOTH
async def test_a10_lost_group_offsets_start_where_the_database_says(stage: Stage, client: str):
    stage.client = client
    from confluent_kafka import ConsumerGroupState
    from confluent_kafka.admin import AdminClient

    stage.produce(payments(40))
    worker = await stage.worker()
    await stage.until_consumed(40)
    worker.terminate()
    await worker.wait()
    admin = AdminClient({"bootstrap.servers": stage.kafka})
    async with asyncio.timeout(30):
        # Whoever has left is out a moment later.
        while (await asyncio.wrap_future(admin.describe_consumer_groups(["shop"])["shop"])).state is not ConsumerGroupState.EMPTY:
            await asyncio.sleep(0.1)
    admin.delete_consumer_groups(["shop"])["shop"].result(30)
    stage.produce(payments(20, 40))
    await stage.worker()
    await stage.until_consumed(60)

    assert await stage.effects() == ids(60)
    assert await stage.rows("SELECT count(*) FROM idem.duplicate") == [0]


async def test_a30_messages_that_kafka_deleted_before_they_were_read_are_told_and_passed(stage: Stage):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    stage.produce(payments(40), partition=lambda _: 0)
    worker = await stage.worker()
    await stage.until("SELECT count(*) FROM payment", 40)
    worker.terminate()
    await worker.wait()
    stage.produce(payments(60, 40), partition=lambda _: 0)
    admin, deleted = AdminClient({"bootstrap.servers": stage.kafka}), TopicPartition(stage.topic, 0, 60)
    admin.delete_records([deleted])[deleted].result(30)
    worker = await stage.worker()
    await worker.line("Kafka has deleted messages before they were read.*40 to 59")
    await stage.until_consumed(100)

    assert await stage.effects() == sorted(set(ids(100)) - {f"p{number}" for number in range(40, 60)})


@BOTH
async def test_a27_members_that_come_and_go_lose_and_double_nothing(stage: Stage, client: str):
    stage.client = client
    stage.produce(payments(300))
    steady = await stage.worker(CONSUMER_IDEM_BATCH_SIZE="10")
    for round in range(4):
        guest = await stage.worker(CONSUMER_IDEM_BATCH_SIZE="10")
        stage.produce(payments(100, 300 + 100 * round))
        await guest.line("lane starts", timeout=30)
        guest.terminate()
        assert await guest.wait() == 0, guest.tail()
    await stage.until_consumed(700)

    assert steady.status is None
    assert await stage.effects() == ids(700)
    assert await stage.rows("SELECT count(*) FROM idem.outbox") == [700]


async def test_a24_poison_does_not_hold_its_partition(stage: Stage):
    values = payments(60)
    for number in (5, 6, 30):
        values[number]["note"] = "raise"
    stage.produce([*values, b"\xff garbage", None])
    await stage.worker()
    await stage.until_consumed(62)

    assert await stage.effects() == sorted(set(ids(60)) - {"p5", "p6", "p30"})
    reasons = await stage.rows("SELECT reason FROM idem.quarantine ORDER BY reason")
    assert reasons == ["attempts-used-up"] * 3 + ["tombstone", "undecodable"]


@BOTH
async def test_the_outbox_comes_out_on_another_topic(stage: Stage, topic, client):
    from confluent_kafka import Consumer

    stage.client = client
    out = topic(2)
    stage.produce(payments(30))
    await stage.worker(RELAY="1", OUT=out)
    await stage.until("SELECT count(*) FROM payment", 30)
    await stage.until("SELECT count(*) FROM idem.outbox", 0)
    consumer = Consumer({"bootstrap.servers": stage.kafka, "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.subscribe([out])
    seen = []
    while len(seen) < 30:
        message = consumer.poll(10)
        assert message is not None, f"only {len(seen)} records came out"
        seen.append(message)
    consumer.close()

    assert len({dict(message.headers())["ce_id"] for message in seen}) == 30
    assert sorted(message.value() for message in seen) == sorted(f'{{"payment_id":"{id}"}}'.encode() for id in ids(30))


async def test_consumption_pauses_at_the_limit_that_is_set_and_resumes(stage: Stage):
    stage.produce(payments(40))
    worker = await stage.worker(CONSUMER_IDEM_OUTBOX_DEPTH_LIMIT="30")
    await worker.line("consumption pauses.*depth.*30")
    await stage.rows("DELETE FROM idem.outbox")
    await worker.line("consumption resumes")
    stage.produce(payments(20, 40))
    await stage.until_consumed(60)

    assert await stage.effects() == ids(60)


async def test_a_worker_opens_no_more_connections_than_are_set(stage: Stage):
    stage.produce(payments(400))
    await stage.worker(CONSUMER_IDEM_POOL_SIZE="2", CONSUMER_IDEM_BATCH_SIZE="5", HANDLER="awaiting")
    most = 0
    # Autovacuum looks in from time to time.
    clients = "datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    while await stage.effects() != ids(400):
        (now,) = await stage.rows(f"SELECT count(*) FROM pg_stat_activity WHERE {clients}")
        most = max(most, now)

    assert most == 2

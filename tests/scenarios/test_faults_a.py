"""Offsets, members and handlers that do what they should not."""

import asyncio

from tests.scenarios.conftest import Stage
from tests.scenarios.test_processes import BOTH, ids, payments


async def commit_ahead(stage: Stage, offset: int) -> None:
    """Commit offsets for messages that nobody has settled, as auto-commit does, once the dead member is out of the group."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": stage.kafka, "group.id": "shop", "enable.auto.commit": False})
    offsets = [TopicPartition(stage.topic, number, offset) for number in range(stage.partitions)]
    async with asyncio.timeout(20):
        while True:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
                break
            except KafkaException:
                await asyncio.sleep(0.2)
    consumer.close()


@BOTH
async def test_a1_offsets_that_were_committed_before_their_messages_were_settled_lose_nothing(stage: Stage, client: str):
    stage.client = client
    stage.produce(payments(40))
    worker = await stage.worker(CONSUMER_IDEM_FAILPOINTS="seal.after=kill@1")
    assert await worker.wait() == -9, worker.tail()
    await commit_ahead(stage, 10)
    await stage.worker()
    await stage.until_consumed(40)

    assert await stage.effects() == ids(40)


@BOTH
async def test_a2_a_worker_that_dies_between_the_two_commits_applies_nothing_twice(stage: Stage, client: str):
    stage.client = client
    stage.produce(payments(40))
    worker = await stage.worker(CONSUMER_IDEM_FAILPOINTS="commit.after=kill@1")
    assert await worker.wait() == -9, worker.tail()
    assert await stage.rows("SELECT count(*) > 0 FROM payment") == [True]
    await stage.worker()
    await stage.until_consumed(40)

    assert await stage.effects() == ids(40)
    assert await stage.rows("SELECT count(*) FROM idem.outbox") == [40]


async def test_a5_a_handler_that_blocks_its_loop_past_the_session_doubles_nothing(stage: Stage):
    values = payments(40)
    values[7]["note"] = "block"
    stage.produce(values)
    blocked = await stage.worker(BLOCK="8")
    await blocked.line("lane starts")
    await stage.worker(BLOCK="0.01")
    await stage.until_consumed(40)

    assert await stage.effects() == ids(40)
    assert await stage.rows("SELECT count(*) FROM idem.quarantine") == [0]


async def test_a26_a_handler_that_never_returns_and_ignores_its_cancellation_takes_the_process_with_it(stage: Stage):
    values = payments(8)
    values[2]["note"] = "never returns"
    stage.produce(values)
    stage.env |= {"DEADLINE": "0.5"}
    worker = await stage.worker()

    assert await worker.wait(timeout=60) == 75, worker.tail()
    assert "p2" not in await stage.effects()


async def test_a15_a_renamed_handler_is_refused_before_it_applies_everything_again(stage: Stage):
    stage.produce(payments(8))
    worker = await stage.worker()
    await stage.until_consumed(8)
    worker.terminate()
    await worker.wait()
    renamed = await stage.worker(NAME="apply-payment-2")

    await renamed.line('declare it with scope="its old name"')
    assert await renamed.wait() != 0
    assert await stage.effects() == ids(8)


@BOTH
async def test_a18_records_of_aborted_transactions_have_no_effect(stage: Stage, client: str):
    import json

    from confluent_kafka import Producer

    stage.client = client
    producer = Producer({"bootstrap.servers": stage.kafka, "transactional.id": stage.topic})
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        producer.produce(stage.topic, json.dumps({"payment_id": f"p{number}"}).encode(), partition=number % 4)
        if number % 3 == 0:
            producer.flush()
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    await stage.worker()
    await stage.until("SELECT count(*) FROM payment", 13)

    assert await stage.effects() == sorted(f"p{number}" for number in range(20) if number % 3)


async def test_g3_a_second_signal_ends_at_once_and_the_fence_keeps_it_safe(stage: Stage):
    stage.produce(payments(8))
    worker = await stage.worker(CONSUMER_IDEM_FAILPOINTS="seal.after=hang@1", CONSUMER_IDEM_DRAIN_TIMEOUT="60")
    await stage.until("SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'idle in transaction'", True)
    worker.terminate()
    await worker.line("stopping")
    worker.terminate()
    assert await worker.wait(timeout=30) == 75, worker.tail()
    await stage.worker()
    await stage.until_consumed(8)

    assert await stage.effects() == ids(8)


@BOTH
async def test_a4_a_handler_that_hangs_while_its_partition_is_given_away_changes_nothing(stage: Stage, client: str):
    stage.client = client
    stage.produce(payments(40))
    hanging = await stage.worker(CONSUMER_IDEM_FAILPOINTS="seal.after=hang@1")
    await stage.until("SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'idle in transaction'", True)
    await stage.worker()
    await stage.worker()
    await hanging.line("left to the fence|lane ends|fenced|unavailable|partition assigned", timeout=60)
    await stage.until_consumed(40)

    assert await stage.effects() == ids(40)
    assert await stage.rows("SELECT count(*) FROM idem.outbox") == [40]

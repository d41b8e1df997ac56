"""Fail-overs to a real standby that misses commits, under live workers, on a ledger without a unique index."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from consumer_idem.testing.supervisor import Supervisor
from consumer_idem.testing.waiting import eventually
from tests.conftest import MakeTopic
from tests.failover import Pair, open_pair, value_at
from tests.outbox.scene import read_topic
from tests.scenarios.conftest import Stage
from tests.scenarios.test_processes import committed, ids, payments

PAYMENTS = "SELECT count(*) FROM payment"


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A primary and its standby."""
    async with open_pair() as pair:
        yield pair


@pytest.fixture
async def stage(pair: Pair, kafka: str, topic: MakeTopic) -> AsyncIterator[Stage]:
    """Workers that reach the database through the proxy; batches are small, so that a fail-over falls between many."""
    async with Supervisor() as supervisor:
        stage = Stage(pair.dsn, kafka, topic(4), supervisor, 4, env={"CONSUMER_IDEM_BATCH_SIZE": "10"})
        yield stage
    if stage.connection is not None:
        stage.connection.terminate()


async def test_a14_b17_c15_a_failover_that_lost_commits_is_made_good_without_another_message(pair: Pair, stage: Stage, topic: MakeTopic):
    """The worker lives on, Kafka's offsets are ahead, ids of the outbox are given again, and nothing new is produced."""
    out = topic(1)
    stage.produce(payments(100))
    worker = await stage.worker(RELAY="1", OUT=out)
    await settled(stage, 100)
    await pair.caught_up()
    pair.part()
    stage.produce(payments(200, 100))
    await settled(stage, 300)
    await eventually(lambda: sum(committed(stage).values()) == 300)
    given = await stage.rows("SELECT last_value FROM idem.outbox_id_seq")
    await asyncio.to_thread(pair.primary.kill9)
    survived = await value_at(pair.standby, PAYMENTS), await value_at(pair.standby, "SELECT last_value FROM idem.outbox_id_seq")
    await pair.promote()
    await reach_the_new(stage)
    await worker.line("older than this worker saw", timeout=30)
    await settled(stage, 300)
    published = await read_topic(stage.kafka, out)

    assert survived[0] == 100
    assert survived[1] < given[0], "no id of the outbox is given again"
    assert await stage.effects() == ids(300)
    twice = Counter(Counter(message.id for message in published).values())
    assert twice == {1: 100, 2: 200}
    assert len({(message.id, message.value) for message in published}) == 300


async def settled(stage: Stage, count: int) -> None:
    """Wait until so many messages are consumed and all their records published."""
    await stage.until_consumed(count)
    await stage.until("SELECT count(*) FROM idem.outbox", 0)


async def test_b17_workers_that_still_reach_the_old_primary_lose_and_double_nothing(pair: Pair, stage: Stage):
    """For a while two servers take commits: the old one those of connections that stayed, the new one those of all others."""
    stage.produce(payments(100))
    first = await stage.worker()
    await stage.until_consumed(100)
    await pair.caught_up()
    pair.part()
    stage.produce(payments(100, 100))
    await stage.until_consumed(200)
    await pair.promote()
    await stage.worker()
    stage.produce(payments(200, 200))
    await eventually(lambda: more_than(pair.primary, 200), timeout=30)
    await eventually(lambda: more_than(pair.standby, 100), timeout=30)
    pair.clients.cut()
    await reach_the_new(stage)
    # At once, so that lanes come to seal before they come to look back.
    stage.produce(payments(100, 400))
    await stage.until_consumed(500)

    assert first.status is None
    assert await stage.effects() == ids(500)


async def reach_the_new(stage: Stage) -> None:
    """Let the test itself connect anew."""
    assert stage.connection is not None
    stage.connection.terminate()


async def more_than(server: Any, count: int) -> bool:
    found = await value_at(server, PAYMENTS)
    assert isinstance(found, int)
    return found > count


async def test_b17_a_failover_that_lost_what_a_worker_had_registered_is_made_good(pair: Pair, stage: Stage):
    """A worker's first start is lost with all that it did, and its ids of scope and source may be given to others."""
    pair.part()
    stage.produce(payments(40))
    worker = await stage.worker()
    await stage.until_consumed(40)
    await asyncio.to_thread(pair.primary.kill9)
    await pair.promote()
    await value_at(pair.standby, "INSERT INTO idem.scope (name, consumer_group, key_scheme) VALUES ('another', 'other', 0) RETURNING id")
    await reach_the_new(stage)
    await stage.until_consumed(40)
    worker.terminate()
    await worker.wait()
    stage.produce(payments(40))
    await stage.worker()
    await stage.until_consumed(80)

    assert await stage.effects() == ids(40)
    assert await stage.rows("SELECT count(*) FROM idem.quarantine") == [0]
    assert await stage.rows("SELECT DISTINCT scope.name FROM idem.inbox LEFT JOIN idem.scope ON scope.id = inbox.scope") == [
        "apply-payment"
    ]

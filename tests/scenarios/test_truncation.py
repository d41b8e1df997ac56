"""A log that loses what was settled and grows again, on a broker whose files the test cuts."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from consumer_idem.testing import KafkaBroker
from consumer_idem.testing.services.kafka_jars import can_resolve
from consumer_idem.testing.supervisor import Supervisor
from tests.conformance.kafka_raw import cut
from tests.conftest import admin_of, make_topic, miss_kafka
from tests.scenarios.conftest import Stage
from tests.scenarios.test_processes import BOTH, ids, payments
from tests.shop import TABLES


@pytest.fixture(scope="module")
def mortal() -> Iterator[KafkaBroker]:
    """A broker to kill and start again."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
async def mortal_stage(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[tuple[Stage, KafkaBroker]]:
    """A stage with a topic of one partition on that broker."""
    if not can_resolve():
        miss_kafka(request.node)
    broker = request.getfixturevalue("mortal")
    topic = f"t-{uuid.uuid4().hex[:12]}"
    make_topic(admin_of(broker.bootstrap), topic, 1, {})
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    async with Supervisor() as supervisor:
        yield Stage(dsn, broker.bootstrap, topic, supervisor, 1, env={"GROUP": topic}, connection=connection), broker
    await connection.close()


@BOTH
@pytest.mark.parametrize("worker_is", ["there", "down"])
async def test_a13_a_log_that_was_cut_below_the_progress_and_has_grown_beyond_it_is_read_from_the_cut(
    mortal_stage: tuple[Stage, KafkaBroker], client: str, worker_is: str
):
    stage, broker = mortal_stage
    stage.client = client
    # It is to find its partition still its own when it goes on.
    worker = await stage.worker(CONSUMER_IDEM_SESSION_TIMEOUT="60")
    stage.produce(payments(40))
    await stage.until_consumed(40)
    stage.produce(payments(20, 40))
    await stage.until_consumed(60)
    if worker_is == "there":
        await worker.stop()
    else:
        worker.terminate()
        await worker.wait()
    await asyncio.to_thread(broker.kill9)
    cut(broker, stage.topic, 40)
    await asyncio.to_thread(broker.start)
    stage.produce(payments(50, 60))
    if worker_is == "there":
        worker.go_on()
    else:
        worker = await stage.worker()
    await worker.line("log was cut off and has grown again.*cut=40", timeout=60)
    await stage.until_consumed(90)

    assert await stage.effects() == ids(110)
    assert await stage.rows("SELECT count(*) FROM idem.outbox") == [110]
    # From the start it would have met the first forty again.
    assert await stage.rows("SELECT count(*) FROM idem.duplicate") == [0]
    assert await stage.rows("SELECT mark_offset, count(*) OVER () FROM idem.progress") == [(89, 1)]

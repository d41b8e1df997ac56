"""What a broker does to offsets and logs by itself, after a while or in an accident: `make test-long`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import asyncpg
import pytest
from confluent_kafka.admin import AdminClient

from consumer_idem.errors import KafkaUnavailable
from consumer_idem.message import Partition
from consumer_idem.ports import Bounds
from consumer_idem.testing.services.kafka_jars import can_resolve
from consumer_idem.testing.supervisor import Child, Supervisor
from tests.cluster import Cluster
from tests.conformance.conftest import CLIENTS
from tests.conformance.kafka_member import Member, produce
from tests.conftest import Services, make_topic, miss_kafka
from tests.scenarios.conftest import Stage
from tests.scenarios.test_processes import BOTH, committed, ids, payments
from tests.shop import TABLES

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TOPIC = "payments.requested"
MakeStage = Callable[[str, int], AbstractAsyncContextManager[Stage]]


@pytest.fixture
def stage_on(dsn: str) -> MakeStage:
    """Make a stage on a broker of the test's own: its address, and how many partitions the topic has."""

    @asynccontextmanager
    async def made(kafka: str, partitions: int) -> AsyncIterator[Stage]:
        connection = await asyncpg.connect(dsn)
        await connection.execute(TABLES)
        async with Supervisor() as supervisor:
            yield Stage(dsn, kafka, TOPIC, supervisor, partitions, connection=connection)
        await connection.close()

    return made


@BOTH
async def test_a11_a_group_whose_offsets_kafka_has_forgotten_starts_where_the_database_says(
    services: Services, stage_on: MakeStage, client: str
):
    broker = services.kafka(properties={"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"})
    make_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), TOPIC, 4, {})
    async with stage_on(broker.bootstrap, 4) as stage:
        stage.client = client
        stage.produce(payments(40))
        worker = await stage.worker()
        await stage.until_consumed(40)
        worker.terminate()
        await worker.wait()
        before = await asyncio.to_thread(committed, stage)
        stage.produce(payments(20, 40))
        async with asyncio.timeout(180):
            while await asyncio.to_thread(committed, stage):
                await asyncio.sleep(1)
        await stage.worker()
        await stage.until_consumed(60)

        assert before == dict.fromkeys(range(4), 10)
        assert await stage.effects() == ids(60)
        # From the earliest it would have met the first forty again.
        assert await stage.rows("SELECT count(*) FROM idem.duplicate") == [0]


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers, from Kafka's own jars."""
    if not can_resolve():
        miss_kafka(request.node)
    with Cluster() as made:
        yield made


@BOTH
async def test_a_leader_that_has_died_is_asked_no_more(cluster: Cluster, client: str):
    _, leader, follower = cluster.nodes
    cluster.topic(TOPIC, [leader, follower])
    produce(cluster.bootstrap, TOPIC, 10)
    member = Member(CLIENTS[client](cluster.bootstrap, "shop"))
    await member.subscriber.start([TOPIC], member)
    await member.holding(Partition(TOPIC, 0))
    told: set[Bounds] = set()

    async def ask() -> None:
        with suppress(KafkaUnavailable):
            told.add(await member.subscriber.bounds(Partition(TOPIC, 0)))

    await ask()
    leader.kill9()
    while (await asyncio.to_thread(cluster.leader_of, TOPIC)) != follower.number:
        await ask()
    produce(cluster.bootstrap, TOPIC, 5)
    async with asyncio.timeout(20):
        while Bounds(0, 15, 15) not in told:
            await ask()
    await member.subscriber.close()

    assert told == {Bounds(0, 10, 10), Bounds(0, 15, 15)}


async def settle_twenty_that_the_follower_lacks(cluster: Cluster, stage: Stage, **env: str) -> Child:
    """Settle forty messages that both replicas have and twenty more of the leader's; return the worker that did it."""
    _, leader, follower = cluster.nodes
    cluster.topic(TOPIC, [leader, follower], unclean_leader_election_enable="true", min_insync_replicas="1")
    worker = await stage.worker(**env)
    stage.produce(payments(40))
    await stage.until_consumed(40)
    await asyncio.to_thread(follower.stop)
    await asyncio.to_thread(cluster.until_in_sync, TOPIC, leader)
    stage.produce(payments(20, 40))
    await stage.until_consumed(60)
    return worker


async def elect_the_follower(cluster: Cluster) -> None:
    """Let the leader die and the follower lead, with what it has."""
    _, leader, follower = cluster.nodes
    leader.kill9()
    await asyncio.to_thread(follower.start)
    await asyncio.to_thread(cluster.until_led_by, TOPIC, follower)


@BOTH
@pytest.mark.parametrize("worker_is", ["there", "down"])
async def test_a13_a_log_that_has_grown_beyond_the_progress_after_an_unclean_election_is_read_from_the_cut(
    cluster: Cluster, stage_on: MakeStage, client: str, worker_is: str
):
    async with stage_on(cluster.bootstrap, 1) as stage:
        stage.client = client
        worker = await settle_twenty_that_the_follower_lacks(cluster, stage, CONSUMER_IDEM_SESSION_TIMEOUT="60")
        if worker_is == "there":
            await worker.stop()
        else:
            worker.terminate()
            await worker.wait()
        await elect_the_follower(cluster)
        stage.produce(payments(50, 60))
        if worker_is == "there":
            worker.go_on()
        else:
            worker = await stage.worker()
        await worker.line("log was cut off and has grown again.*cut=40", timeout=90)
        await stage.until_consumed(90)

        assert await stage.effects() == ids(110)
        assert await stage.rows("SELECT count(*) FROM idem.outbox") == [110]
        assert await stage.rows("SELECT count(*) FROM idem.duplicate") == [0]


@BOTH
@pytest.mark.parametrize("worker_is", ["there", "down"])
async def test_a13_a_log_that_an_unclean_election_has_cut_off_is_read_from_its_start(
    cluster: Cluster, stage_on: MakeStage, client: str, worker_is: str
):
    async with stage_on(cluster.bootstrap, 1) as stage:
        stage.client = client
        worker = await settle_twenty_that_the_follower_lacks(cluster, stage)
        if worker_is == "down":
            worker.terminate()
            await worker.wait()
        await elect_the_follower(cluster)
        if worker_is == "down":
            stage.produce(payments(10, 60))
            worker = await stage.worker()
        await worker.line("topic was made anew or truncated", timeout=90)
        stage.produce(payments(30 if worker_is == "there" else 20, 60 if worker_is == "there" else 70))
        stage.produce(payments(20, 40))
        await stage.until("SELECT count(*) FROM payment", 90)
        await stage.until("SELECT max(next_offset)::int FROM idem.progress WHERE owner IS NOT NULL", 90)

        assert await stage.effects() == ids(90)
        assert await stage.rows("SELECT count(*) FROM idem.outbox") == [90]
        assert await stage.rows("SELECT count(*) FROM idem.quarantine") == [0]

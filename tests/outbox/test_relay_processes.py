"""Relay processes that are killed and stopped, and a network and a broker that fail: the faults of section C that need them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

from consumer_idem.outbox.backpressure import Backpressure, BackpressureLimits
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.testing import KafkaApi, LostKafka, TcpProxy
from consumer_idem.testing.services.choose import ExternalKafka, Kafka
from consumer_idem.testing.supervisor import Child, Supervisor
from consumer_idem.testing.waiting import eventually
from tests.conftest import MakeTopic, Services, make_topic
from tests.outbox.scene import Scene, first_occurrences, record


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """Ends all processes with the test."""
    async with Supervisor(env={"RELAY_LEASE": "1"}) as supervisor:
        yield supervisor


@pytest.fixture
def proxied(broker: Kafka) -> Any:
    """The run's broker, where a proxy can stand before it."""
    if isinstance(broker, ExternalKafka):
        pytest.skip("the given Kafka cannot be put behind a proxy")
    return broker


async def _relay(supervisor: Supervisor, scene: Scene, failpoints: str = "", **env: str) -> Child:
    enabled = {"CONSUMER_IDEM_ENABLE_FAILPOINTS": "1", "CONSUMER_IDEM_FAILPOINTS": failpoints} if failpoints else {}
    return await supervisor.start("-m", "tests.programs.relay", scene.dsn, scene.bootstrap, env={**enabled, **env})


async def _add(scene: Scene, name: str, start: int, stop: int, keys: int = 10, batch: int = 50) -> None:
    for first in range(start, stop, batch):
        await scene.add(*(record(name, number, key=f"k{number % keys}") for number in range(first, min(first + batch, stop))))


async def _in_order(scene: Scene, name: str, count: int) -> int:
    """Assert that all arrived, each key in order; return how many came twice."""
    messages = await scene.published(name)
    firsts = first_occurrences(messages)
    assert list(range(count)) == sorted(number for numbers in firsts.values() for number in numbers)
    assert all(numbers == sorted(numbers) for numbers in firsts.values())
    return len(messages) - count


async def test_c5_a_stopped_relay_that_wakes_up_after_its_lease_does_no_harm(
    scene: Scene, topic: MakeTopic, supervisor: Supervisor
) -> None:
    name = topic(2)
    zombie = await _relay(supervisor, scene, "relay.before_publish=stop@1")
    await _add(scene, name, 0, 200)
    await zombie.until_stopped()
    await _add(scene, name, 200, 400)
    successor = await _relay(supervisor, scene)
    await scene.drained()
    zombie.go_on()
    await _add(scene, name, 400, 600)
    await scene.drained()
    # It is a relay again: it gets its fair share, and ends in order.
    await eventually(lambda: scene.connection.fetchval("SELECT count(DISTINCT owner) = 2 FROM idem.outbox_shard"))
    for child in (zombie, successor):
        child.terminate()
        assert await child.wait() == 0

    assert await _in_order(scene, name, 600) > 0, "the zombie sent nothing, so that nothing was tested"


@pytest.mark.parametrize("failpoint", ["relay.before_publish=kill@2", "relay.after_ack=kill@2", "relay.after_settle=kill@2"])
async def test_c6_a_relay_killed_around_the_acknowledgement_loses_nothing(
    scene: Scene, topic: MakeTopic, supervisor: Supervisor, failpoint: str
) -> None:
    name = topic(2)
    await _add(scene, name, 0, 100)
    child = await _relay(supervisor, scene, failpoint)
    await child.line("relay")

    async def began() -> bool:
        return child.status is not None or await scene.left() < 100

    # Else all may be there before the first read, and there is no second time.
    await eventually(began, timeout=30)
    adding = asyncio.create_task(_add(scene, name, 100, 300, batch=1))
    assert await child.wait() == -9
    await adding
    await _relay(supervisor, scene)
    await scene.drained()
    twice = await _in_order(scene, name, 300)

    assert twice > 0 or failpoint != "relay.after_ack=kill@2"


@pytest.mark.parametrize("scene", ["confluent", "aiokafka"], indirect=True)
async def test_c7_lost_answers_of_the_broker_neither_lose_nor_reorder(scene: Scene, topic: MakeTopic, proxied: Any) -> None:
    name = topic(3)
    lost = LostKafka(KafkaApi.PRODUCE)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port, triggers=[lost]) as proxy:
        async with scene.relay(bootstrap=proxy.bootstrap):
            lost.arm(times=10, every=3)
            for start in range(0, 3000, 50):
                await _add(scene, name, start, start + 50, batch=10)
                await scene.drained(left=0)
    assert lost.fired == 10

    # An idempotent producer sends the same batch again under the same number, and the broker knows it.
    assert await _in_order(scene, name, 3000) == 0


@pytest.mark.parametrize("scene", ["confluent", "aiokafka"], indirect=True)
async def test_c8_resets_and_latency_neither_lose_nor_reorder(scene: Scene, topic: MakeTopic, proxied: Any) -> None:
    name = topic(3)
    async with TcpProxy(proxied.proxied_address, port=proxied.proxy_port) as proxy:
        proxy.delay(timedelta(milliseconds=3))
        async with scene.relay(bootstrap=proxy.bootstrap):
            for start in range(0, 2000, 100):
                await _add(scene, name, start, start + 100, batch=10)
                proxy.cut()
            await scene.drained()

    assert await _in_order(scene, name, 2000) == 0


async def test_c10_a_topic_that_is_not_authorised_holds_its_own_records_until_it_is(scene: Scene, services: Services) -> None:
    broker = services.kafka(
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for name in ("open", "closed"):
        make_topic(admin, name, 1, {})
    write = ("closed", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.WRITE, AclPermissionType.DENY)
    binding = AclBinding(ResourceType.TOPIC, *write)
    admin.create_acls([binding])[binding].result(10)
    # The broker goes by what it tells, and that may come a moment later.
    await eventually(lambda: asyncio.wrap_future(admin.describe_acls(_filter(binding))))
    scene.bootstrap = broker.bootstrap
    async with scene.relay():
        await scene.add(record("closed", 1), record("open", 2), record("closed", 3), record("open", 4))
        await scene.drained(left=2)
        await eventually(lambda: scene.connection.fetchval("SELECT count(*) = 1 FROM idem.outbox_hold WHERE topic = 'closed'"))
        (_,) = [done.result(10) for done in admin.delete_acls([_filter(binding)]).values()]
        await scene.drained()

        assert await scene.values("closed") == [1, 3]
        assert await scene.values("open") == [2, 4]


def _filter(binding: AclBinding) -> Any:
    from confluent_kafka.admin import AclBindingFilter

    pattern = (binding.name, binding.resource_pattern_type, binding.principal, binding.host, binding.operation, binding.permission_type)
    return AclBindingFilter(binding.restype, *pattern)


async def _outage(scene: Scene, services: Services, database: AsyncpgDatabase, seconds: float) -> None:
    """20 records are added while the broker is down for so long: they stay, consumption pauses, and they arrive once it is back."""
    broker = services.kafka()
    make_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), "t", 2, {})
    scene.bootstrap = broker.bootstrap
    limits = BackpressureLimits(depth=15)
    pressure = Backpressure(database, limits=limits, interval=timedelta(0))
    async with scene.relay():
        await _add(scene, "t", 0, 10)
        await scene.drained()
        assert not await pressure.paused()
        await asyncio.to_thread(broker.kill9)
        await _add(scene, "t", 10, 30, batch=1)
        assert await pressure.paused()
        down = asyncio.get_running_loop().time() + seconds
        await eventually(lambda: asyncio.get_running_loop().time() > down, timeout=seconds + 5)
        assert await scene.connection.fetchval("SELECT count(*) FROM idem.outbox WHERE state = 'p'") == 20
        await asyncio.to_thread(broker.start)
        await scene.drained(timeout=60)
        assert not await pressure.paused()
        assert await _in_order(scene, "t", 30) == 0


async def test_c11_a_broker_that_is_down_is_waited_for_and_consumption_pauses(
    scene: Scene, services: Services, database: AsyncpgDatabase
) -> None:
    await _outage(scene, services, database, 3)


@pytest.mark.long
async def test_c11_a_broker_that_is_down_for_longer_than_any_client_timeout(
    scene: Scene, services: Services, database: AsyncpgDatabase
) -> None:
    await _outage(scene, services, database, 75)


@pytest.mark.long
async def test_c7_a_broker_that_pauses_for_40_seconds(scene: Scene, services: Services) -> None:
    broker = services.kafka()
    make_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), "t", 2, {})
    scene.bootstrap = broker.bootstrap
    async with scene.relay():
        await _add(scene, "t", 0, 100)
        broker.pause()
        await _add(scene, "t", 100, 400)
        end = asyncio.get_running_loop().time() + 40
        await eventually(lambda: asyncio.get_running_loop().time() > end, timeout=50)
        broker.resume()
        await scene.drained(timeout=90)
        await _in_order(scene, "t", 400)


async def test_c17_relays_whose_clocks_differ_by_ten_minutes_share_and_take_over(
    scene: Scene, topic: MakeTopic, supervisor: Supervisor
) -> None:
    name = topic(2)
    # Long enough for a busy machine: whose lease runs out on the way would publish some records twice.
    early, late = [await _relay(supervisor, scene, CLOCK_SKEW=skew, RELAY_LEASE="3") for skew in ("-300", "300")]
    halves = "SELECT count(*) = 2 FROM (SELECT 1 FROM idem.outbox_shard GROUP BY owner HAVING count(*) = 32) AS half"
    await eventually(lambda: scene.connection.fetchval(halves))
    await _add(scene, name, 0, 100)
    await scene.drained()
    await late.kill9()
    await _add(scene, name, 100, 200)
    await scene.drained()
    early.terminate()

    assert await early.wait() == 0
    assert await _in_order(scene, name, 200) == 0

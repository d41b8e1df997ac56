"""The Kafka clients that the suites run with. A test that takes `connect` or `join` runs once with each."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from consumer_idem.kafka import _confluent_lookups, _confluent_producer, aiokafka_publisher, confluent_publisher, confluent_subscriber
from consumer_idem.kafka import aiokafka as aiokafka_module
from consumer_idem.kafka.aiokafka import AiokafkaPublisher, AiokafkaSubscriber
from consumer_idem.kafka.confluent import ConfluentPublisher, ConfluentSubscriber
from consumer_idem.ports import Publisher, Subscriber
from consumer_idem.testing import KafkaBroker
from consumer_idem.testing.services.choose import ExternalKafka, Kafka
from consumer_idem.testing.services.kafka_jars import can_resolve
from tests.conformance.kafka_member import Join, Member
from tests.conftest import make_topic

SESSION = timedelta(seconds=3)

Connect = Callable[..., Subscriber]


def aiokafka(bootstrap: str, group: str, **settings: Any) -> Subscriber:
    return AiokafkaSubscriber(bootstrap, group, session_timeout=SESSION, **settings)


def confluent(bootstrap: str, group: str, **settings: Any) -> Subscriber:
    return ConfluentSubscriber(bootstrap, group, session_timeout=SESSION, **settings)


CLIENTS: Mapping[str, Connect] = {"aiokafka": aiokafka, "confluent": confluent}
IN_EVERY_WAY: Mapping[str, Connect] = {
    **CLIENTS,
    "confluent-cooperative": partial(confluent, assignment="cooperative-sticky"),
    "confluent-consumer": partial(confluent, protocol="consumer"),
}


@pytest.fixture(params=CLIENTS)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Make a subscriber: `connect(bootstrap, group, options={…})`."""
    return CLIENTS[request.param]


@pytest.fixture
def group() -> str:
    """The name of a new group."""
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def join(request: pytest.FixtureRequest, connect: Connect, group: str) -> AsyncIterator[Join]:
    """Start a member of the test's group; all are closed with the test."""
    members: list[Member] = []

    async def join(
        *topics: str, start_at: int | None = 0, bootstrap: str | None = None, prepare: Callable[[Member], None] | None = None
    ) -> Member:
        member = Member(connect(bootstrap or request.getfixturevalue("kafka"), group), start_at)
        if prepare:
            prepare(member)
        members.append(member)
        await member.subscriber.start(topics, member)
        return member

    yield join
    await asyncio.gather(*(member.subscriber.close() for member in members))


MakePublisher = Callable[..., Publisher]
PUBLISHERS: Mapping[str, MakePublisher] = {"aiokafka": AiokafkaPublisher, "confluent": ConfluentPublisher}


@pytest.fixture(params=PUBLISHERS)
def make_publisher(request: pytest.FixtureRequest) -> MakePublisher:
    """Make a publisher: `make_publisher(bootstrap, options={…})`."""
    return PUBLISHERS[request.param]


@pytest.fixture
def quick_requests(make_publisher: MakePublisher) -> Mapping[str, Any]:
    """Options with which a request that is not answered is given up after about two seconds."""
    if make_publisher is AiokafkaPublisher:
        return {"request_timeout_ms": 2000}
    return {"socket.timeout.ms": 2000, "request.timeout.ms": 1000}


@pytest.fixture
async def publisher(make_publisher: MakePublisher, kafka: str) -> AsyncIterator[Publisher]:
    """A publisher that is connected to the run's broker."""
    publisher = make_publisher(kafka)
    await publisher.start()
    yield publisher
    await publisher.close()


@pytest.fixture(scope="session")
def mortal(pytestconfig: pytest.Config, broker: Kafka) -> Iterator[Any]:
    """A broker to kill and start again, with a topic `t-…` for whoever asks `new_topic`."""
    if not can_resolve():
        pytest.skip("the suite can kill only a broker that it runs itself")
    with KafkaBroker() as own:
        yield own


@pytest.fixture
def new_topic() -> Callable[[Any], str]:
    """Make a topic on another broker than the run's."""

    def make(broker: Any) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        make_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), name, 1, {})
        return name

    return make


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait for their brokers two seconds instead of ten."""
    for module in (aiokafka_module, aiokafka_publisher, confluent_subscriber, _confluent_lookups, confluent_publisher):
        monkeypatch.setattr(module, "_ANSWER_WITHIN", 2.0)
    monkeypatch.setattr(_confluent_producer, "_CLOSE_WITHIN", 2.0)


@pytest.fixture
def proxied(broker: Kafka) -> Any:
    """The run's broker, where a proxy can stand before it: `TcpProxy(proxied.proxied_address, port=proxied.proxy_port)`."""
    if isinstance(broker, ExternalKafka):
        pytest.skip("the given Kafka cannot be put behind a proxy")
    return broker

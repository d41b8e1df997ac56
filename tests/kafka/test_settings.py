"""Which client settings are refused, and which pass."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from consumer_idem.errors import UnsafeClientSetting
from consumer_idem.kafka._aiokafka_settings import publisher_settings as aiokafka_publisher
from consumer_idem.kafka._confluent_settings import connection_settings
from consumer_idem.kafka._confluent_settings import publisher_settings as confluent_publisher
from consumer_idem.kafka.aiokafka import AiokafkaSubscriber
from consumer_idem.kafka.confluent import ConfluentPublisher, ConfluentSubscriber


async def _aiokafka_publisher(options: dict[str, Any]) -> Any:
    from consumer_idem.kafka.aiokafka import AiokafkaPublisher

    return AiokafkaPublisher("b:1", options=options)


def _aiokafka_subscriber(options: dict[str, Any]) -> Any:
    return AiokafkaSubscriber("b:1", "g", options=options)


def _confluent_subscriber(options: dict[str, Any]) -> Any:
    return ConfluentSubscriber("b:1", "g", options=options)


def _confluent_publisher(options: dict[str, Any]) -> Any:
    return ConfluentPublisher("b:1", options=options)


UNSAFE: list[tuple[Callable[[dict[str, Any]], Any], str, Any]] = [
    (_aiokafka_subscriber, "enable_auto_commit", True),
    (_aiokafka_subscriber, "auto_offset_reset", "latest"),
    (_aiokafka_subscriber, "isolation_level", "read_uncommitted"),
    (_aiokafka_subscriber, "check_crcs", False),
    (_aiokafka_subscriber, "group_id", "another"),
    (_aiokafka_subscriber, "value_deserializer", str),
    (_confluent_subscriber, "enable.auto.commit", True),
    (_confluent_subscriber, "auto.commit.enable", "true"),
    (_confluent_subscriber, "enable.auto.offset.store", True),
    (_confluent_subscriber, "auto.offset.reset", "earliest"),
    (_confluent_subscriber, "isolation.level", "read_uncommitted"),
    (_confluent_subscriber, "check.crcs", False),
    (_confluent_subscriber, "allow.auto.create.topics", True),
    (_confluent_subscriber, "partition.assignment.strategy", "range"),
    (_confluent_subscriber, "max.poll.interval.ms", 300_000),
    (_confluent_publisher, "acks", 1),
    (_confluent_publisher, "request.required.acks", "1"),
    (_confluent_publisher, "enable.idempotence", False),
    (_confluent_publisher, "enable.gapless.guarantee", True),
    (_confluent_publisher, "max.in.flight", 1000),
    (_confluent_publisher, "message.timeout.ms", 5000),
    (_confluent_publisher, "delivery.timeout.ms", 5000),
    (_confluent_publisher, "retries", 3),
    (_confluent_publisher, "linger.ms", 5),
    (_confluent_publisher, "partitioner", "consistent_random"),
    (_confluent_publisher, "allow.auto.create.topics", True),
]


@pytest.mark.parametrize(("make", "name", "value"), UNSAFE)
def test_an_unsafe_setting_is_refused_by_name(make: Callable[[dict[str, Any]], Any], name: str, value: Any) -> None:
    from consumer_idem.kafka._confluent_settings import ALIASES

    with pytest.raises(UnsafeClientSetting, match=ALIASES.get(name, name)):
        make({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", 1),
        ("enable_idempotence", False),
        ("transactional_id", "t"),
        ("partitioner", hash),
        ("key_serializer", str),
        ("max_batch_size", 16_384),
    ],
)
async def test_an_unsafe_setting_of_aiokafkas_publisher_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UnsafeClientSetting, match=name):
        await _aiokafka_publisher({name: value})


def test_an_unsafe_setting_is_refused_where_librdkafka_hides_topic_settings() -> None:
    with pytest.raises(UnsafeClientSetting, match="acks"):
        confluent_publisher("b:1", {"default.topic.config": {"request.required.acks": 0}})


def test_a_safe_value_may_be_repeated() -> None:
    confluent_publisher("b:1", {"acks": -1, "enable.idempotence": "true"})
    aiokafka_publisher("b:1", {"acks": -1})


def test_harmless_settings_pass() -> None:
    settings = confluent_publisher(
        "b:1", {"security.protocol": "SASL_SSL", "sasl.username": "me", "client.id": "mine", "compression.type": "zstd"}
    )
    assert (settings["security.protocol"], settings["client.id"], settings["compression.type"]) == ("SASL_SSL", "mine", "zstd")
    assert settings.items() >= {"sasl.username": "me", "acks": "all"}.items()
    assert connection_settings(settings).keys() >= {"bootstrap.servers", "security.protocol", "sasl.username"}
    assert "acks" not in connection_settings(settings)

    subscriber = AiokafkaSubscriber("b:1", "g", session_timeout=timedelta(seconds=9), options={"ssl_context": None, "fetch_max_wait_ms": 7})
    assert subscriber._settings.items() >= {"fetch_max_wait_ms": 7, "session_timeout_ms": 9000, "heartbeat_interval_ms": 900}.items()


def test_a_secret_is_not_in_the_message() -> None:
    with pytest.raises(UnsafeClientSetting) as raised:
        confluent_publisher("b:1", {"sasl.password": "s3cret", "acks": 0})

    assert "s3cret" not in str(raised.value)

"""aiokafka's settings: which are ours to choose, which may not be changed."""

import inspect
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from consumer_idem.errors import DeclarationError
from consumer_idem.kafka._settings import merged

_CLIENT_ID = "consumer-idem"
_BATCH_BYTES = 1_000_000
_NEVER_MS = 2**31 - 1
_OURS = {"partitioner"}


def subscriber_settings(bootstrap: str, group: str, session_timeout: timedelta, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of AIOKafkaConsumer; raise UnsafeClientSetting for an option that would lose messages."""
    session_ms = _ms(session_timeout)
    defaults = {
        "client_id": _CLIENT_ID,
        "rebalance_timeout_ms": session_ms,
        "heartbeat_interval_ms": max(100, session_ms // 10),
        # A join is a request like any other to aiokafka, but the broker answers it only when the last member has joined.
        "request_timeout_ms": max(40_000, session_ms + 10_000),
        # A lane on a long batch does not poll, and a member without partitions never does; neither is dead. Heartbeats tell.
        "max_poll_interval_ms": _NEVER_MS,
        # While a fetch of the drained partitions waits at the broker, no other partition of that broker is fetched.
        "fetch_max_wait_ms": 25,
        "metadata_max_age_ms": 60_000,
    }
    fixed = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "session_timeout_ms": session_ms,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": "read_committed",
        "check_crcs": True,
        "key_deserializer": None,
        "value_deserializer": None,
    }
    return merged(_of(AIOKafkaConsumer, options), defaults=defaults, fixed=fixed)


def publisher_settings(bootstrap: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of AIOKafkaProducer; raise UnsafeClientSetting for an option that would lose or reorder records."""
    defaults = {
        "client_id": _CLIENT_ID,
        "request_timeout_ms": 10_000,
        "metadata_max_age_ms": 60_000,
    }
    fixed = {
        "bootstrap_servers": bootstrap,
        "acks": "all",
        "enable_idempotence": True,
        "transactional_id": None,
        "key_serializer": None,
        "value_serializer": None,
        # Batches are made by us, below this size but for single records, and each goes to the partition that murmur2 says.
        "max_batch_size": _BATCH_BYTES,
        "partitioner": "murmur2",
    }
    settings = merged(_of(AIOKafkaProducer, options), defaults=defaults, fixed=fixed)
    del settings["partitioner"]
    return settings


def _of(client: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that this client has; one set of options serves both. Raise DeclarationError for what neither knows."""
    known = {each: set(inspect.signature(each).parameters) | _OURS for each in (AIOKafkaConsumer, AIOKafkaProducer)}
    unknown = sorted(options.keys() - set.union(*known.values()))
    if unknown:
        raise DeclarationError(f"aiokafka has no option {', '.join(unknown)}. Correct the name in CONSUMER_IDEM_KAFKA_OPTIONS.")
    return {name: value for name, value in options.items() if name in known[client]}


def _ms(time: timedelta) -> int:
    return int(time.total_seconds() * 1000)

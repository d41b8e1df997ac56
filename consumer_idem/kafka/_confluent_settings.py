"""librdkafka's settings: which are ours to choose, which may not be changed. Aliases are known, so that none is a way around."""

from collections.abc import Mapping
from typing import Any

from consumer_idem.kafka._settings import merged

_BATCH_BYTES = 1_000_000
_ANY_SIZE = 1_000_000_000
_LINGER_MS = 60_000

_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "delivery.timeout.ms": "message.timeout.ms",
    "retries": "message.send.max.retries",
    "queue.buffering.max.ms": "linger.ms",
    "auto.commit.enable": "enable.auto.commit",
    "compression.codec": "compression.type",
}


def publisher_settings(bootstrap: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a Producer; raise UnsafeClientSetting for an option that would lose or reorder records."""
    defaults = {
        "client.id": "consumer-idem",
        "compression.type": "none",
        "reconnect.backoff.max.ms": 1000,
        "request.timeout.ms": 10_000,
        # An answer that never comes: librdkafka would wait a minute before it sends again.
        "socket.timeout.ms": 15_000,
        # A topic that was deleted is told as unknown after this, not after half a minute.
        "topic.metadata.propagation.max.ms": 3000,
    }
    fixed = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        # One batch of a partition is under way at a time, so this is for several partitions side by side.
        "max.in.flight.requests.per.connection": 5,
        # A batch that fails for good is the end of its line here; it need not be the end of the producer.
        "enable.gapless.guarantee": False,
        "message.timeout.ms": 0,
        "message.send.max.retries": 2**31 - 1,
        # Nothing leaves before the whole batch is handed over and flushed; so it leaves as one.
        "linger.ms": _LINGER_MS,
        "batch.size": _BATCH_BYTES,
        "batch.num.messages": 10_000,
        # The topic's limit decides, not the client's.
        "message.max.bytes": _ANY_SIZE,
        "allow.auto.create.topics": False,
        "partitioner": "murmur2_random",
        "delivery.report.only.error": False,
    }
    settings = merged(_canonical(options), defaults=defaults, fixed=fixed)
    # Off by default, and librdkafka warns of it whenever it is named.
    del settings["enable.gapless.guarantee"]
    return settings


def connection_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `settings` that say where the cluster is and who we are, for an AdminClient."""
    prefixes = ("bootstrap.", "security.", "ssl.", "sasl.", "client.", "socket.", "broker.", "enable.ssl")
    return {name: value for name, value in settings.items() if name.startswith(prefixes)}


def _canonical(options: Mapping[str, Any]) -> dict[str, Any]:
    nested = options.get("default.topic.config", {})
    flat = {**nested, **{name: value for name, value in options.items() if name != "default.topic.config"}}
    return {_ALIASES.get(name, name): value for name, value in flat.items()}

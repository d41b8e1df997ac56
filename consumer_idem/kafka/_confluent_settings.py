"""librdkafka's settings: which are ours to choose, which may not be changed. Aliases are known, so that none is a way around."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from consumer_idem.kafka._settings import merged

_BATCH_BYTES = 1_000_000
_ANY_SIZE = 1_000_000_000
_LINGER_MS = 60_000

ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "delivery.timeout.ms": "message.timeout.ms",
    "retries": "message.send.max.retries",
    "queue.buffering.max.ms": "linger.ms",
    "auto.commit.enable": "enable.auto.commit",
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
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


Protocol = Literal["classic", "consumer"]
Assignment = Literal["eager", "cooperative-sticky"]

_STRATEGIES: Mapping[Assignment, str] = {"eager": "roundrobin", "cooperative-sticky": "cooperative-sticky"}


def subscriber_settings(bootstrap: str, group: str, membership: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a Consumer; raise UnsafeClientSetting for an option that would lose messages."""
    defaults = {
        "client.id": "consumer-idem",
        # While a fetch of the drained partitions waits at the broker, no other partition of that broker is fetched.
        "fetch.wait.max.ms": 25,
        "fetch.error.backoff.ms": 100,
        # Our own buffers are what lanes read from; librdkafka's need only bridge the time until the next look.
        "queued.min.messages": 2000,
        "queued.max.messages.kbytes": 16_384,
        "fetch.queue.backoff.ms": 10,
        "reconnect.backoff.max.ms": 1000,
        "socket.timeout.ms": 15_000,
        "topic.metadata.refresh.interval.ms": 60_000,
    }
    fixed = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,
        "allow.auto.create.topics": False,
        # It tells how far a partition has been read where its last records are no messages.
        "enable.partition.eof": True,
        **membership,
    }
    return merged(_canonical(options), defaults=defaults, fixed=fixed)


def membership_settings(protocol: Protocol, assignment: Assignment, session_timeout: timedelta, instance_id: str | None) -> dict[str, Any]:
    """Return how we take part in the group. The KIP-848 protocol leaves sessions, heartbeats and assignment to the broker."""
    session_ms = session_timeout // timedelta(milliseconds=1)
    settings: dict[str, Any] = {
        "group.protocol": protocol,
        # The time that the group gives a member to rejoin; our thread polls all the time, whatever the lanes do.
        "max.poll.interval.ms": 2 * session_ms,
    }
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    if protocol == "classic":
        settings["session.timeout.ms"] = session_ms
        settings["heartbeat.interval.ms"] = max(100, session_ms // 10)
        settings["partition.assignment.strategy"] = _STRATEGIES[assignment]
    return settings


def connection_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `settings` that say where the cluster is and who we are, for an AdminClient."""
    prefixes = ("bootstrap.", "security.", "ssl.", "sasl.", "client.", "socket.", "broker.", "enable.ssl")
    return {name: value for name, value in settings.items() if name.startswith(prefixes)}


def _canonical(options: Mapping[str, Any]) -> dict[str, Any]:
    nested = options.get("default.topic.config", {})
    flat = {**nested, **{name: value for name, value in options.items() if name != "default.topic.config"}}
    return {ALIASES.get(name, name): value for name, value in flat.items()}

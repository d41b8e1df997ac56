"""The words for what comes from Kafka and what goes back to it. Immutable data, no behaviour that does I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

Header = tuple[str, bytes | None]
"""One Kafka header: its name and its raw value. Names may repeat, a value may be null."""


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int


class Position(NamedTuple):
    """Where a message lies in Kafka. Never part of an idempotency key: a message published twice has two positions."""

    topic: str
    partition: int
    offset: int


class Mark(NamedTuple):
    """A message by which a log is known again: its offset, and the epoch of the leader that wrote it."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One delivery from Kafka.

    `time` is the timestamp that Kafka stores with the message (producer's or broker's clock), None if it has none. `leader_epoch`
    is that of the partition's leader when the message was written, None where the client cannot tell.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    time: datetime | None = None
    leader_epoch: int | None = field(default=None, compare=False)

    @property
    def position(self) -> Position:
        """The topic, partition and offset of this delivery."""
        return Position(self.topic, self.partition, self.offset)

    def header_values(self, name: str) -> list[bytes | None]:
        """Return every value of the header `name`, in order; empty if it is absent."""
        return [value for header, value in self.headers if header == name]


_new = object.__new__
_SET: Sequence[Callable[[Message, Any], None]] = [
    getattr(Message, name).__set__ for name in ("topic", "partition", "offset", "key", "value", "headers", "time", "leader_epoch")
]
_set_topic, _set_partition, _set_offset, _set_key, _set_value, _set_headers, _set_time, _set_leader_epoch = _SET


def message(  # noqa: PLR0913 - a message's parts
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    time: datetime | None,
    leader_epoch: int | None,
) -> Message:
    """Return `Message(…)`, for adapters: in half the time, since a frozen dataclass sets its fields the long way round."""
    made = _new(Message)
    _set_topic(made, topic)
    _set_partition(made, partition)
    _set_offset(made, offset)
    _set_key(made, key)
    _set_value(made, value)
    _set_headers(made, headers)
    _set_time(made, time)
    _set_leader_epoch(made, leader_epoch)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRecord:
    """One row to publish, as the relay hands it to a Publisher. `id` is sent as the header `ce_id`."""

    id: UUID
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = field(default=())

"""The words for what comes from Kafka and what goes back to it. Immutable data, no behaviour that does I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One delivery from Kafka.

    `time` is the timestamp that Kafka stores with the message (producer's or broker's clock), None if it has none.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    time: datetime | None = None

    @property
    def position(self) -> Position:
        """The topic, partition and offset of this delivery."""
        return Position(self.topic, self.partition, self.offset)

    def header_values(self, name: str) -> list[bytes | None]:
        """Return every value of the header `name`, in order; empty if it is absent."""
        return [value for header, value in self.headers if header == name]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRecord:
    """One row to publish, as the relay hands it to a Publisher. `id` is sent as the header `ce_id`."""

    id: UUID
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = field(default=())

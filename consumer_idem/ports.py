"""All that consumer_idem asks of the outside: Kafka through Subscriber and Publisher, PostgreSQL through Database.

Adapters implement these and pass the suites in tests/conformance; nothing else imports a client library.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from consumer_idem.message import Message, OutboxRecord, Partition

Row = Mapping[str, Any]
"""One row of a result, read by column name."""


class Bounds(NamedTuple):
    """The offsets a partition holds now: the first that can be read, the end of what can be read, the end of what is written.

    `end` is Kafka's last stable offset: an open transaction holds it back at its first message, and then `high_watermark` lies
    behind it. It never lies before it.
    """

    earliest: int
    end: int
    high_watermark: int


class AssignmentListener(Protocol):
    """Told by a Subscriber what it holds. Each call is awaited before the client goes on with the rebalance."""

    async def assigned(self, partitions: Collection[Partition]) -> None:
        """These partitions are ours from now on; nothing is fetched from one before `Subscriber.seek` was called."""

    async def revoked(self, partitions: Collection[Partition]) -> None:
        """These are about to be given away: finish what is in flight; offsets can still be committed."""

    async def lost(self, partitions: Collection[Partition]) -> None:
        """These are gone already: another member may own them; offsets must not be committed."""


class Subscriber(Protocol):
    """Where messages come from: one Kafka client, one group. Reads committed messages only and commits no offset by itself."""

    async def start(self, topics: Collection[str], listener: AssignmentListener) -> None:
        """Join the group; raise TopicUnknown or KafkaUnavailable if that cannot work."""

    async def poll(self, partition: Partition, limit: int, timeout: timedelta) -> Sequence[Message]:
        """Return up to `limit` next messages of `partition` in order; empty if none came within `timeout`.

        They have their `leader_epoch` if the client can tell it: a log that was cut off and has grown again is known by nothing else.
        Raises PartitionLost if it is not held any more, OffsetOutOfRange if its position is not in the log, Unreadable where
        something in the log cannot be decoded, again and again until the next seek. A cancelled poll loses no message.
        """

    async def seek(self, partition: Partition, offset: int) -> None:
        """Let the next poll start at `offset`; what was fetched before is forgotten."""

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit the next offset to read for each partition, in bounded time; raise OffsetCommitFailed if not taken."""

    async def committed(self, partition: Partition) -> int | None:
        """Return the group's committed offset, None if there is none."""

    async def bounds(self, partition: Partition) -> Bounds:
        """Ask Kafka, not the client's memory of it, how far the partition reaches."""

    async def read_to(self, partition: Partition) -> int | None:
        """Return the offset that polls have come to, None before the first seek; raise PartitionLost if it is not held any more.

        That is behind the last message that a poll returned, and behind what follows it and is none: a transaction's marker,
        aborted records, a gap. A client that has come to the end of the partition returns its `Bounds.end`.
        """

    async def offset_at(self, partition: Partition, time: datetime) -> int | None:
        """Return the first offset whose message is not older than `time`, None if there is none."""

    async def topic_id(self, topic: str) -> UUID | None:
        """Return Kafka's id of the topic's incarnation, None where the client cannot tell."""

    async def holds(self, partition: Partition) -> bool:
        """Wait for the next heartbeat and tell whether the group still gives us `partition`."""

    async def close(self) -> None:
        """Leave the group and free everything; the listener hears `revoked` first."""


class FailureKind(Enum):
    """What a failed delivery is about, which decides what waits."""

    RETRIABLE = "retriable"
    """Wait and send again, for ever: broker down, time-out, not enough replicas."""
    TOPIC = "topic"
    """The topic is missing or not authorised: its records wait, an alarm is raised."""
    RECORD = "record"
    """This record can never be sent, e.g. too large: it is parked and its key blocked."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Acknowledged by all in-sync replicas."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class NotDelivered:
    """Not acknowledged. It may still have been written (a lost answer), so it is sent again under the same id."""

    kind: FailureKind
    error: str


Delivery = Delivered | NotDelivered


class Publisher(Protocol):
    """Where outbox records go. Idempotent, acks=all, murmur2 partitioner; order holds per Kafka partition."""

    async def start(self) -> None:
        """Connect; raise KafkaUnavailable if no broker answers."""

    async def publish(self, records: Sequence[OutboxRecord]) -> Sequence[Delivery]:
        """Send `records` in order and wait for every answer; return one delivery per record, in input order.

        Of records that go to the same Kafka partition, none is Delivered behind one that is not.
        """

    async def record_limit(self, topic: str) -> int | None:
        """Return the topic's max.message.bytes; None where it cannot be told, or does not bound what a record may take.

        The limit is that of batches as they are sent: with compression it says nothing about a record.
        """

    async def close(self) -> None:
        """Flush what was sent and free everything."""


class Fault(Enum):
    """What an error of our database connection means for the messages in its transaction."""

    INFRASTRUCTURE = "infrastructure"
    """Nobody's fault: back off and run again, never counted."""
    ABORTED = "aborted"
    """25P02: an earlier statement failed and somebody swallowed the error."""
    STATEMENT = "statement"
    """The statement itself is wrong for this data."""

    @property
    def gravity(self) -> int:
        """Order of what explains what: an infrastructure error aborts the transaction, not the other way round."""
        return ("statement", "aborted", "infrastructure").index(self.value)


class Connection(Protocol):
    """One PostgreSQL connection within one transaction of ours. Errors of the driver pass through as they are."""

    fault: Fault | None
    """The gravest fault that a statement on this connection had in this transaction, also if it was swallowed.

    Whoever rolls back to a savepoint puts back what it was before.
    """
    cause: str | None
    """The first error that set `fault`, as `Type: message`; of no meaning while there is none."""

    @property
    def raw(self) -> Any:
        """The driver's own connection."""

    def in_transaction(self) -> bool:
        """Tell without a round trip whether the server is still inside the transaction."""

    async def execute(self, sql: str, *args: Any) -> str:
        """Run one statement; return its command tag."""

    async def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement once per row of arguments, in one round trip."""

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement; return its rows."""

    async def commit(self) -> None:
        """Commit and give the connection back; shielded from cancellation.

        Raises CommitUnknown if no clear answer came, DatabaseFailure if the server rolled back, whatever the reason.
        """

    async def rollback(self) -> None:
        """Roll back and give the connection back; a connection that cannot is discarded. Never raises."""


class Database(Protocol):
    """PostgreSQL. Nothing outlives a transaction, so that a transaction-pooling proxy may stand in between."""

    async def open(self) -> None:
        """Connect; raise DatabaseFailure with what to do if that cannot work."""

    async def begin(self, script: str) -> Connection:
        """Take a connection and run `script`, which begins a transaction and sets its settings, in one round trip."""

    async def close(self) -> None:
        """Close every connection."""


class Listener(Protocol):
    """A database session of its own that hears NOTIFY. What it hears is a hint and may be lost; polling is the truth."""

    async def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        """Call `heard` with the payload of every notification on `channel` from now on, connecting again whenever it must."""

    async def close(self) -> None:
        """Stop hearing."""

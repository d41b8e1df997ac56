"""The last statement of every transaction: it moves progress, and fails if the transaction is broken or fenced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from consumer_idem.consumer.case import Case
from consumer_idem.errors import DatabaseRewound, DeclarationError, Fenced
from consumer_idem.inbox.progress import Progress, Slot, Span
from consumer_idem.message import Message
from consumer_idem.ports import Connection, Database
from consumer_idem.sql import Queries
from consumer_idem.transaction.short import short


class Seal(Protocol):
    """How a transaction is sealed, and under which slot and fence its messages' attempts are counted."""

    passed: int
    """Deliveries below this offset were settled before the lane began: what they left behind is written already."""

    @property
    def fence(self) -> tuple[int, UUID] | None:
        """The epoch and owner that must still hold; None without progress."""

    def topic(self, name: str) -> int:
        """Return the small integer of the topic's incarnation that is read."""

    def slot(self, message: Message) -> Slot:
        """Return the slot that the message belongs to."""

    async def begin(self, connection: Connection) -> bool:
        """Take what the seal will move, if that must be held from the start; False if it is not there to be taken."""

    async def seal(self, connection: Connection, attempt: UUID, settled: Sequence[Case]) -> bool:
        """Seal the transaction that settles these messages; False if it may not be committed."""

    def advance(self, settled: Sequence[Message]) -> None:
        """The transaction that settled these messages is committed: the next one must start behind them."""

    async def explain(self, database: Database) -> None:
        """Raise Fenced or DatabaseRewound if that is why the seal failed; return if the transaction itself was lost."""


class PlainSeal:
    """For `app.process`: proves that the transaction is whole, but has no progress, hence no fence and no rewind."""

    fence: tuple[int, UUID] | None = None
    passed = 0

    def __init__(self, group: str, topics: Mapping[str, int], schema: str) -> None:
        self._group = group
        self._topics = topics
        self._sql = Queries("transaction", schema)["seal"]

    def topic(self, name: str) -> int:
        """Return the small integer of the topic; raise DeclarationError for one that no handler reads."""
        if name not in self._topics:
            raise DeclarationError(f"No handler of this App reads topic {name!r}. Declare one, or hand in only the topics of its handlers.")
        return self._topics[name]

    def slot(self, message: Message) -> Slot:
        """Return the slot that the message belongs to."""
        return Slot(self._group, self.topic(message.topic), message.partition)

    async def begin(self, connection: Connection) -> bool:
        """There is nothing to take."""
        return True

    async def seal(self, connection: Connection, attempt: UUID, settled: Sequence[Case]) -> bool:
        """Seal; False if the transaction is not the one that made the claims."""
        return bool(await connection.fetch(self._sql, str(attempt)))

    def advance(self, settled: Sequence[Message]) -> None:
        """There is no watermark to move."""

    async def explain(self, database: Database) -> None:
        """Return: without progress, only the transaction itself can have been lost."""


@dataclass(slots=True)
class ProgressSeal:
    """A lane's: moves its progress from the watermark over the messages that are settled, under its epoch and owner.

    `passed` is where the progress stood when the lane took it: Kafka may deliver from further back.
    """

    progress: Progress
    lane_slot: Slot
    epoch: int
    owner: UUID
    watermark: int
    schema: str
    passed: int = 0

    @property
    def fence(self) -> tuple[int, UUID] | None:
        """The epoch and owner that must still hold."""
        return self.epoch, self.owner

    def topic(self, name: str) -> int:
        """Return the small integer of the lane's topic."""
        return self.lane_slot.topic

    def slot(self, message: Message) -> Slot:
        """Return the lane's slot."""
        return self.lane_slot

    async def begin(self, connection: Connection) -> bool:
        """Take nothing: a lane that was fenced finds out at its seal, and its progress is locked no longer than it must be."""
        return True

    async def seal(self, connection: Connection, attempt: UUID, settled: Sequence[Case]) -> bool:
        """Move the progress; False if the epoch, the owner or the database's past is another, or the transaction is."""
        last = settled[-1].message
        span = Span(self.watermark, last.offset + 1, last.leader_epoch)
        return await self.progress.seal(connection, self.lane_slot, (self.epoch, self.owner), span, attempt)

    def advance(self, settled: Sequence[Message]) -> None:
        """Move the watermark, so that the next seal notices a database that went back behind this commit."""
        self.watermark = settled[-1].offset + 1

    async def explain(self, database: Database) -> None:
        """Read the progress and raise what it says."""
        async with short(database, self.schema) as connection:
            row = await self.progress.read(connection, self.lane_slot)
        if row is None or row["next_offset"] < self.watermark:
            raise DatabaseRewound
        if (row["epoch"], row["owner"]) != (self.epoch, self.owner):
            raise Fenced

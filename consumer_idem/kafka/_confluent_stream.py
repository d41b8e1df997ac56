"""What waits of one partition between the consumer's thread, which adds, and the event loop, which takes."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition
from confluent_kafka import Message as Record

from consumer_idem.errors import ConsumerIdemError, Unreadable
from consumer_idem.kafka._held import Held, instant
from consumer_idem.message import Message, Partition, message

# Not `record.headers()`: for a name that is not UTF-8 the binding returns a null pointer and an error at once, and a call that
# Python 3.11 has specialised does not look for the error. Called from C, it is always looked for.
_headers = methodcaller("headers")

_HUNGRY = 500
_FULL = 4000
_FULL_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Damage:
    """Something between two messages that cannot be read, from `offset` on."""

    offset: int
    error: str


_Entry = Record | Damage | ConsumerIdemError


class Stream(Held):
    """A held partition with its buffer. Once it is full the thread pauses the partition, and goes on with it at half.

    The thread owns `expected`, `end` and `paused`, and gives the buffer up for a new one at every seek; the loop only takes from
    it. `end` is where the log ended when librdkafka last came to its end: it may lie behind `expected`, since what is no
    message is not told.
    """

    __slots__ = ("_added", "_broken", "_buffer", "_taken", "end", "expected", "paused")

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self.expected: int | None = None
        self.paused = True
        self.restart(None)

    @property
    def position(self) -> TopicPartition:
        """Where the client must go on, for its own calls."""
        return TopicPartition(*self.partition, self.expected or 0)

    def restart(self, offset: int | None) -> None:
        """Forget everything and expect `offset` next; nothing at all if it is None. Called by the thread."""
        self.expected = offset
        self.end = 0
        self._buffer: deque[_Entry] = deque()
        self._added = self._taken = 0
        self._broken = False

    def add(self, record: Record) -> bool:
        """Keep a record; return False for one that nobody waits for, or that has been here before. Called by the thread.

        Behind an error nothing is kept: once librdkafka has failed to parse a batch, it may go on anywhere.
        """
        offset = record.offset()
        expected = self.expected
        if expected is None or offset is None or offset < expected or self._broken:
            return False
        self.expected = offset + 1
        self._added += len(record)
        self._buffer.append(record)
        return True

    def break_off(self, fault: ConsumerIdemError | str) -> bool:
        """Keep an error in its place among the records. Called by the thread."""
        if self.expected is None or self._broken:
            return False
        self._buffer.append(Damage(self.expected, fault) if isinstance(fault, str) else fault)
        self._broken = True
        return True

    @property
    def read_to(self) -> int | None:
        """What all has been taken up to; None before the first seek."""
        if self.next is None or self._buffer:
            return self.next
        return max(self.next, self.end)

    @property
    def hungry(self) -> bool:
        """Whether somebody may soon wait for more."""
        return self.expected is not None and len(self._buffer) < _HUNGRY and self._bytes < _FULL_BYTES and not self._broken

    @property
    def full(self) -> bool:
        """Whether no more is to be kept; so it is behind an error, until somebody seeks."""
        return len(self._buffer) >= _FULL or self._bytes >= _FULL_BYTES or self._broken

    @property
    def drained(self) -> bool:
        """Whether there is room for as much again as is kept."""
        return len(self._buffer) <= _FULL // 2 and self._bytes <= _FULL_BYTES // 2 and not self._broken

    @property
    def _bytes(self) -> int:
        return self._added - self._taken

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._buffer

    def take(self, limit: int) -> Sequence[Message]:
        """Take up to `limit` messages; raise the error that stands before the first. Called by the loop."""
        buffer, messages = self._buffer, list[Message]()
        while buffer and len(messages) < limit:
            entry = buffer[0]
            if not isinstance(entry, Record):
                if messages:
                    break
                raise self._error(entry)
            try:
                messages.append(_message(self.partition, entry))
            # A header name is not UTF-8. Asked again, the binding would give a null pointer without an error.
            except (SystemError, UnicodeDecodeError):
                buffer[0] = _unreadable(self.partition, entry)
                continue
            buffer.popleft()
            self._taken += len(entry)
        return messages

    def _error(self, entry: Damage | ConsumerIdemError) -> ConsumerIdemError:
        if isinstance(entry, ConsumerIdemError):
            return entry
        # librdkafka does not tell where the damage ends. So it is passed offset by offset, and nothing that is sound is skipped.
        return Unreadable(self.partition, entry.offset, entry.offset + 1, error=entry.error)


def _unreadable(partition: Partition, record: Record) -> Unreadable:
    offset = record.offset() or 0
    error = f"a header name is not UTF-8; key {record.key()!r}"
    return Unreadable(partition, offset, offset + 1, error=error, raw=record.value() or b"")


def _message(partition: Partition, record: Any) -> Message:
    kind, time = record.timestamp()
    headers = _headers(record)
    return message(
        partition.topic,
        partition.number,
        record.offset(),
        record.key(),
        record.value(),
        tuple(headers) if headers else (),
        instant(time) if kind != TIMESTAMP_NOT_AVAILABLE else None,
        record.leader_epoch(),
    )

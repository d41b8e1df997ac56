"""What the proxy can lose: the answer to a COMMIT of PostgreSQL, to a request of Kafka, or the request itself."""

import asyncio
import re
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Literal

from consumer_idem.testing.proxy_connection import Fate, Watcher

What = Literal["answer", "request"]
"""answer: the server has done it and the client will not hear of it. request: the server never hears of it."""


class _Lost:
    """Counts the occasions and decides which are lost. Nothing is, until it is armed."""

    def __init__(self, what: What = "answer", *, then: Fate = Fate.CUT) -> None:
        self.what: What = what
        self.then = then
        self.fired = 0
        self._left = 0
        self._every = 1
        self._seen = 0
        self._changed = asyncio.Event()

    def arm(self, times: int = 1, *, every: int = 1) -> None:
        """Lose the next `times` occasions, or of the coming ones only each `every`-th."""
        self._left, self._every, self._seen = times, every, 0

    def disarm(self) -> None:
        """Lose nothing more."""
        self._left = 0

    async def until_fired(self, times: int = 1) -> None:
        """Wait until `times` occasions were lost since this object was made."""
        while self.fired < times:
            self._changed.clear()
            await self._changed.wait()

    def due(self) -> bool:
        """Tell whether the present occasion is to be lost, and count it."""
        if self._left <= 0:
            return False
        self._seen += 1
        if self._seen % self._every != 0:
            return False
        self._left -= 1
        self.fired += 1
        self._changed.set()
        return True


class LostCommit(_Lost):
    """Loses COMMITs of PostgreSQL, in the simple and in the extended protocol; connections must not be encrypted."""

    def watch(self) -> Watcher:
        """Return the watcher of a new connection."""
        return _PostgresWatcher(self)


class KafkaApi(IntEnum):
    """The requests of Kafka's protocol that tests lose."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    END_TXN = 26
    CONSUMER_GROUP_HEARTBEAT = 68


class LostKafka(_Lost):
    """Loses requests of one kind, by their correlation id; connections must not be encrypted."""

    def __init__(self, api: KafkaApi, what: What = "answer", *, then: Fate = Fate.CUT) -> None:
        super().__init__(what, then=then)
        self.api = api

    def watch(self) -> Watcher:
        """Return the watcher of a new connection."""
        return _KafkaWatcher(self)


class _Frames:
    """Cuts a stream into frames. `size_of` tells a frame's size, 0 as long as its head is incomplete."""

    def __init__(self, size_of: Callable[[bytes], int]) -> None:
        self._size_of = size_of
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that `data` completes, each with its start in `data`, 0 if it began before."""
        before = len(self._rest)
        stream, start = self._rest + data, 0
        while True:
            size = self._size_of(stream[start : start + 16])
            if not size or start + size > len(stream):
                break
            yield max(0, start - before), stream[start : start + size]
            start += size
        self._rest = stream[start:]


class _KafkaWatcher:
    def __init__(self, lost: LostKafka) -> None:
        self._lost = lost
        self._waiting: set[int] = set()
        self._requests = _Frames(_kafka_size)
        self._answers = _Frames(_kafka_size)

    def to_server(self, data: bytes) -> int:
        for start, frame in self._requests.feed(data):
            api, _, correlation = struct.unpack_from(">hhi", frame, 4)
            if api != self._lost.api:
                continue
            if self._lost.what == "request" and self._lost.due():
                return start
            self._waiting.add(correlation)
        return len(data)

    def to_client(self, data: bytes) -> int:
        for start, frame in self._answers.feed(data):
            (correlation,) = struct.unpack_from(">i", frame, 4)
            if correlation not in self._waiting:
                continue
            self._waiting.discard(correlation)
            if self._lost.what == "answer" and self._lost.due():
                return start
        return len(data)


def _kafka_size(head: bytes) -> int:
    return 0 if len(head) < 4 else int(struct.unpack_from(">i", head)[0]) + 4


_ENCRYPTION_REQUESTS = (80877103, 80877104)
_CANCEL_REQUEST = 80877102
_COMMIT = re.compile(rb"\s*(commit|end)\b", re.IGNORECASE)


class _PostgresWatcher:
    """Follows the protocol far enough to know each message: https://www.postgresql.org/docs/current/protocol-flow.html."""

    def __init__(self, lost: LostCommit) -> None:
        self._lost = lost
        self._started = False
        # Requests for encryption, which the server refuses with a single byte that is no message.
        self._single_bytes = 0
        self._statements: dict[bytes, bool] = {}
        self._portals: dict[bytes, bool] = {}
        self._sent = _Frames(lambda head: _message_size(head) if self._started else _startup_size(head))
        self._answers = _Frames(self._answer_size)

    def to_server(self, data: bytes) -> int:
        for start, frame in self._sent.feed(data):
            if not self._started:
                self._start(frame)
            elif self._commits(frame) and self._lost.what == "request" and self._lost.due():
                return start
        return len(data)

    def to_client(self, data: bytes) -> int:
        for start, frame in self._answers.feed(data):
            if self._single_bytes:
                self._single_bytes -= 1
            elif frame[:1] == b"C" and frame[5:] == b"COMMIT\0" and self._lost.what == "answer" and self._lost.due():
                return start
        return len(data)

    def _start(self, frame: bytes) -> None:
        (code,) = struct.unpack_from(">i", frame, 4)
        if code in _ENCRYPTION_REQUESTS:
            self._single_bytes += 1
        elif code != _CANCEL_REQUEST:
            self._started = True

    def _answer_size(self, head: bytes) -> int:
        return len(head[:1]) if self._single_bytes else _message_size(head)

    def _commits(self, frame: bytes) -> bool:
        """Tell whether this message makes the server run a COMMIT; remember statements and portals that will."""
        kind, body = frame[:1], frame[5:]
        if kind == b"Q":
            return _COMMIT.match(body) is not None
        names = body.split(b"\0", 2)
        if kind == b"P":
            self._statements[names[0]] = _COMMIT.match(names[1]) is not None
        elif kind == b"B":
            self._portals[names[0]] = self._statements.get(names[1], False)
        return kind == b"E" and self._portals.get(names[0], False)


def _message_size(head: bytes) -> int:
    return 0 if len(head) < 5 else int(struct.unpack_from(">i", head, 1)[0]) + 1


def _startup_size(head: bytes) -> int:
    return 0 if len(head) < 4 else int(struct.unpack_from(">i", head)[0])

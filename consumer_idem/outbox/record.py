"""What a transaction leaves in the outbox, and the ids that make a repeated run leave the same."""

import os
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from consumer_idem.errors import RecordRefused
from consumer_idem.message import Header
from consumer_idem.uuids import uuid8

RESERVED = frozenset({"ce_id", "ce_source", "ce_type", "ce_time", "ce_specversion"})
"""Headers that the relay writes from the record's own fields; twice in one message they would make it unidentifiable."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def uuid7() -> UUID:
    """Return a UUIDv7 (RFC 9562): milliseconds since 1970, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    return UUID(int=milliseconds << 80 | 7 << 76 | (random >> 68) << 64 | 2 << 62 | random & (1 << 62) - 1)


def record_id(key_hash: UUID, generation: int, topic: str, ordinal: int) -> UUID:
    """Return the id of a handler's `ordinal`-th record for `topic`: the same in every run of the same message."""
    # Key hashes are hashes already: to mix in the hash of the record's name is enough, and that is made once.
    return uuid8(key_hash, _mark(generation, topic, ordinal))


@lru_cache(1024)
def _mark(generation: int, topic: str, ordinal: int) -> int:
    # The numbers come first and hold no slash, so that no topic can imitate another record's name.
    return int.from_bytes(sha256(f"record/{generation}/{ordinal}/{topic}".encode()).digest()[:16], "big")


class _Columns(NamedTuple):
    message_id: UUID
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    type: str | None
    source: str
    message_time: datetime | None


class PendingRecord(_Columns):
    """A record to publish once its transaction has committed.

    `message_id` is sent as `ce_id`: give one that you can give again, e.g. stored with your data, so that doing the work
    twice publishes one id; the default is a new UUIDv7. `message_time` is sent as `ce_time`; None: when it was added.
    Raises RecordRefused for what PostgreSQL or Kafka would not take.
    """

    # A tuple, because handlers make one for every message, and a frozen dataclass takes three times as long.
    __slots__ = ()

    def __new__(  # noqa: PLR0913 - a row's columns, by name
        cls,
        *,
        topic: str,
        source: str,
        message_id: UUID | None = None,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Sequence[Header] = (),
        type: str | None = None,
        message_time: datetime | None = None,
    ) -> "PendingRecord":
        return checked_record(message_id or uuid7(), topic, key, value, headers, type, source, message_time)


def checked_record(  # noqa: PLR0913 - a row's columns, in order
    message_id: UUID,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    type: str | None,
    source: str,
    message_time: datetime | None,
) -> PendingRecord:
    """Return `PendingRecord(…)`: handlers make one for every message, and names take half of what it costs."""
    _check_texts(topic, source, type)
    if message_time is not None and message_time.tzinfo is None:
        raise RecordRefused(f"The time {message_time} of a record has no time zone. Use an aware datetime.")
    if headers:
        for name, _ in headers:
            _check_header(name)
    return _new(PendingRecord, (message_id, topic, key, value, headers, type, source, message_time))


_new: Callable[..., PendingRecord] = tuple.__new__


@lru_cache(1024)
def _check_texts(topic: str, source: str, type: str | None) -> None:
    _check_topic(topic)
    _check_text(source)
    if type is not None:
        _check_text(type)


def _check_topic(topic: str) -> None:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise RecordRefused(f"{topic!r} is no name of a Kafka topic: 1 to 249 letters, digits, dots, dashes and underscores.")


def _check_text(text: str) -> None:
    if not text or "\x00" in text or not _encodable(text):
        raise RecordRefused(f"{text!r} cannot be a record's source, type or header: it is empty, or has a NUL or a lone surrogate.")


@lru_cache(1024)
def _check_header(name: str) -> None:
    _check_text(name)
    if name in RESERVED:
        raise RecordRefused(f"The header {name!r} is written by the relay. Use `id=`, `type=` or `source=`, or another name.")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

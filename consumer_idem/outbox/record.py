"""What a transaction leaves in the outbox, and the ids that make a repeated run leave the same."""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from consumer_idem.errors import RecordRefused
from consumer_idem.message import Header
from consumer_idem.uuids import uuid5

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
    # The numbers come first and hold no slash, so that no topic can imitate another record's name.
    return uuid5(key_hash, f"record/{generation}/{ordinal}/{topic}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecord:
    """A record to publish once its transaction has committed.

    `message_id` is sent as `ce_id`: give one that you can give again, e.g. stored with your data, so that doing the work
    twice publishes one id; the default is a new UUIDv7. `message_time` is sent as `ce_time`; None: when it was added.
    Raises RecordRefused for what PostgreSQL or Kafka would not take.
    """

    message_id: UUID = field(default_factory=uuid7)
    topic: str
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    type: str | None = None
    source: str
    message_time: datetime | None = None

    def __post_init__(self) -> None:
        _check_topic(self.topic)
        _check_text(self.source)
        if self.type is not None:
            _check_text(self.type)
        for name, _ in self.headers:
            _check_header(name)
        if self.message_time is not None and self.message_time.tzinfo is None:
            raise RecordRefused(f"The time {self.message_time} of a record has no time zone. Use an aware datetime.")


@lru_cache(1024)
def _check_topic(topic: str) -> None:
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise RecordRefused(f"{topic!r} is no name of a Kafka topic: 1 to 249 letters, digits, dots, dashes and underscores.")


@lru_cache(1024)
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

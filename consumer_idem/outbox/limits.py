"""Record sizes against what the topics take, so that too large a record fails where it is made and not in the relay."""

import sys
from collections.abc import Callable

from consumer_idem.errors import RecordTooLarge
from consumer_idem.outbox.record import PendingRecord
from consumer_idem.ports import Publisher

_BATCH = 61
"""Bytes of a record batch's own head, which counts towards the limit."""
_NOT_KNOWN = sys.maxsize


def size_of(record: PendingRecord) -> int:
    """Return how many bytes the record takes in Kafka, alone in a batch and not compressed.

    The format is that of https://kafka.apache.org/documentation/#recordbatch.
    """
    headers: list[tuple[str, int | None]] = [
        ("ce_id", 36),
        ("ce_specversion", 3),
        ("ce_source", len(record.source.encode())),
        ("ce_time", 27),
    ]
    if record.type is not None:
        headers.append(("ce_type", len(record.type.encode())))
    headers += [(name, None if value is None else len(value)) for name, value in record.headers]
    # Attributes and the two deltas are a byte each.
    body = 3 + _with_length(record.key) + _with_length(record.value) + _varint(len(headers))
    for name, length in headers:
        body += _with_length(name.encode()) + _varint(-1 if length is None else length) + (length or 0)
    return _BATCH + _varint(body) + body


def _with_length(part: bytes | None) -> int:
    return 1 if part is None else _varint(len(part)) + len(part)


def _varint(number: int) -> int:
    """Return how many bytes a signed number takes: seven bits each, its sign in the lowest."""
    return max(1, ((number << 1 ^ number >> 63).bit_length() + 6) // 7)


class RecordLimits:
    """The limits of the topics that handlers publish to, as far as they are known. Nothing of the rest is refused.

    A topic is noted when its first record is made, and `learn` asks for the limits of those that were noted. `on_new` hears
    of a topic that is new, so that this is soon.
    """

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self.on_new: Callable[[], None] = lambda: None

    async def learn(self, publisher: Publisher) -> int:
        """Ask Kafka for the limits of all topics that were noted; one that it does not tell keeps the last known one. Return 0."""
        for topic in list(self._limits):
            limit = await publisher.record_limit(topic)
            if limit is not None:
                self._limits[topic] = limit
        return 0

    def check(self, record: PendingRecord) -> None:
        """Raise RecordTooLarge if the record's topic is known not to take it."""
        limit = self._limits.get(record.topic)
        if limit is None:
            self._limits[record.topic] = _NOT_KNOWN
            self.on_new()
        elif _at_most(record) > limit and (size := size_of(record)) > limit:
            raise RecordTooLarge(
                f"A record for {record.topic} takes {size} bytes in Kafka, and the topic no more than {limit}. "
                "Send less, e.g. a reference to where the data is, or raise the topic's max.message.bytes."
            )


def _at_most(record: PendingRecord) -> int:
    """Return a size that is not below the true one, at a glance: every record is looked at, and nearly all are small."""
    size = 400 + len(record.value or b"") + len(record.key or b"") + 4 * len(record.source) + 4 * len(record.type or "")
    if record.headers:
        size += sum([16 + 4 * len(name) + len(value or b"") for name, value in record.headers])
    return size

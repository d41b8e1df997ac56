"""Record sizes against what the topics take, so that too large a record fails where it is made and not in the relay."""

from collections.abc import Collection

from consumer_idem.errors import RecordTooLarge
from consumer_idem.outbox.record import PendingRecord
from consumer_idem.ports import Publisher

_BATCH = 61
"""Bytes of a record batch's own head, which counts towards the limit."""
_RECORD = 30
"""At most: length, attributes, two deltas, and the lengths of key, value and the number of headers, as varints."""
_HEADER = 10
_CLOUD_EVENT = 5 * _HEADER + len("ce_idce_sourcece_typece_timece_specversion") + 36 + 27 + len("1.0")


def size_of(record: PendingRecord) -> int:
    """Return at most how many bytes the record takes in Kafka, alone in a batch and uncompressed."""
    size = _BATCH + _RECORD + _CLOUD_EVENT + len(record.key or b"") + len(record.value or b"")
    size += len(record.source.encode()) + len((record.type or "").encode())
    return size + sum(_HEADER + len(name.encode()) + len(value or b"") for name, value in record.headers)


class RecordLimits:
    """The topics' limits as far as they are known."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    async def learn(self, publisher: Publisher, topics: Collection[str]) -> None:
        """Ask Kafka for the limits of these topics; one that it does not tell is not checked."""
        for topic in topics:
            limit = await publisher.record_limit(topic)
            if limit is not None:
                self._limits[topic] = limit

    def check(self, record: PendingRecord) -> None:
        """Raise RecordTooLarge if the record's topic is known not to take it."""
        limit = self._limits.get(record.topic)
        if limit is None:
            return
        size = size_of(record)
        if size > limit:
            raise RecordTooLarge(
                f"A record for {record.topic} takes up to {size} bytes, the topic {limit}. Send less, or raise its max.message.bytes."
            )

"""The partition that a record belongs to: murmur2 of its key, as the Java client's default does, so that all clients agree."""

from struct import unpack_from
from uuid import UUID

_MASK = 0xFFFFFFFF
_MIX = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 that Kafka uses (org.apache.kafka.common.utils.Utils.murmur2), unsigned."""
    length = len(data)
    h = _SEED ^ length
    for k in unpack_from(f"<{length >> 2}I", data):
        k = k * _MIX & _MASK
        h = h * _MIX & _MASK ^ (k ^ k >> 24) * _MIX & _MASK
    tail = data[length & ~3 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _MIX & _MASK
    h = (h ^ h >> 13) * _MIX & _MASK
    return h ^ h >> 15


def partition_of(key: bytes | None, record_id: UUID, count: int) -> int:
    """Return which of `count` partitions takes a record; one without a key goes where its id points, the same every time."""
    if key is None:
        return record_id.int % count
    return (murmur2(key) & 0x7FFFFFFF) % count

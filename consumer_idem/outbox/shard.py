"""Which shard a record belongs to. It is stored in the row and decides who may publish it, so this never changes."""

from functools import lru_cache
from uuid import UUID
from zlib import crc32

SHARDS = 64


def shard_of(topic: str, key: bytes | None, message_id: UUID) -> int:
    """Return the shard: one for all records of a key within a topic; a record without a key goes by its id."""
    if key is None:
        return crc32(message_id.bytes) % SHARDS
    return crc32(key, _start(topic)) % SHARDS


@lru_cache(4096)
def _start(topic: str) -> int:
    # A topic's name holds no NUL, so that the border between topic and key is certain.
    return crc32(topic.encode() + b"\x00")

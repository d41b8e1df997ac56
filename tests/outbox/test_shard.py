from collections import Counter
from uuid import UUID

import pytest

from consumer_idem.outbox.record import uuid7
from consumer_idem.outbox.shard import SHARDS, shard_of

SOME = UUID("0af76519-16cd-43dd-8448-eb211c80319c")

GOLDEN = [
    ("payments.applied", b"", 11),
    ("payments.applied", b"account-1", 61),
    ("payments.applied", b"account-2", 7),
    ("orders", b"account-1", 45),
    ("orders", b"Z\xc3\xbcrich", 47),
    ("orders", b"\x00\xff\x00\xff\x00\xff\x00\xff", 20),
    ("orders", None, 21),
]


@pytest.mark.parametrize(("topic", "key", "shard"), GOLDEN)
def test_a_key_stays_in_its_shard_for_ever(topic: str, key: bytes | None, shard: int) -> None:
    assert shard == shard_of(topic, key, SOME)


def test_the_id_does_not_matter_where_there_is_a_key() -> None:
    assert shard_of("t", b"k", SOME) == shard_of("t", b"k", uuid7())


@pytest.mark.parametrize(
    "keys", [[b"account-%d" % number for number in range(6400)], [b"%d" % number for number in range(6400)], [None] * 6400]
)
def test_keys_are_spread_evenly(keys: list[bytes | None]) -> None:
    counts = Counter(shard_of("payments", key, uuid7()) for key in keys)

    assert len(counts) == SHARDS
    assert max(counts.values()) < 2 * 6400 / SHARDS

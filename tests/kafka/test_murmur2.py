"""The partition of a key, against the vectors of Kafka's own tests and against both clients."""

import os
import random
import uuid

import confluent_kafka
import pytest
from aiokafka.partitioner import murmur2 as reference

from consumer_idem.kafka._murmur2 import murmur2, partition_of

# org.apache.kafka.common.utils.UtilsTest, which gives them as signed integers.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), VECTORS.items())
def test_kafkas_own_vectors(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % 2**32


def test_c18_ten_thousand_keys_go_where_other_clients_put_them() -> None:
    chance = random.Random(18)
    for _ in range(10_000):
        key, count = chance.randbytes(chance.randrange(0, 70)), chance.randrange(1, 200)
        assert murmur2(key) == reference(key)
        assert partition_of(key, uuid.uuid4(), count) == confluent_kafka.murmur2(key, count)


def test_without_a_key_the_records_id_decides() -> None:
    record_id = uuid.UUID(bytes=os.urandom(16), version=4)

    assert partition_of(None, record_id, 7) == partition_of(None, record_id, 7) < 7
    assert {partition_of(None, uuid.uuid4(), 7) for _ in range(500)} == set(range(7))

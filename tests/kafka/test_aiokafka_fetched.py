"""The leader epochs of what aiokafka has fetched, read from the bytes of its batches."""

import struct

from consumer_idem.kafka._aiokafka_fetched import Fetched
from consumer_idem.message import Partition
from tests.kafka.test_aiokafka_records import batch

PARTITION = Partition("t", 3)


def written(base: int, count: int, epoch: int) -> bytes:
    data = bytearray(batch([(1, None, b"value", [])] * count, base=base))
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


def epochs(fetched: Fetched, *offsets: int) -> list[int | None]:
    return [fetched.leader_epoch(offset) for offset in offsets]


def test_every_record_has_the_epoch_of_its_batch():
    fetched = Fetched(PARTITION)
    fetched.learn(written(10, 5, 2) + written(15, 5, 2) + written(20, 5, 4))
    fetched.learn(written(25, 5, 4) + written(30, 5, 7)[:-20])

    assert epochs(fetched, 9, 10, 19, 20, 29, 30) == [None, 2, 2, 4, 4, 7]


def test_what_is_fetched_again_from_further_back_replaces_what_was_known_behind_it():
    fetched = Fetched(PARTITION)
    fetched.learn(written(10, 10, 2) + written(20, 10, 4))
    fetched.learn(written(15, 5, 2) + written(20, 5, 9))

    assert epochs(fetched, 12, 16, 20, 29) == [2, 2, 9, 9]


def test_a_seek_forgets_all():
    fetched = Fetched(PARTITION)
    fetched.learn(written(10, 10, 2))
    fetched.seek(10)

    assert epochs(fetched, 10) == [None]


def test_no_epoch_is_known_of_batches_that_have_none_of_older_formats_and_of_garbage():
    old = bytearray(written(10, 5, 3))
    old[16] = 1
    for data in (written(10, 5, -1), bytes(old), b"", b"\0" * 40):
        fetched = Fetched(PARTITION)
        fetched.learn(data)

        assert epochs(fetched, 10, 14) == [None, None]

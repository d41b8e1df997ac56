"""Record batches read by hand, against those that aiokafka's own builder makes."""

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_idem.errors import Unreadable
from consumer_idem.kafka._aiokafka_records import read
from consumer_idem.kafka._held import instant
from consumer_idem.message import Message, Partition

PARTITION = Partition("t", 3)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(
    st.tuples(st.integers(1, 2**41), st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=300), HEADERS), min_size=1
)


def batch(records: list[Any], *, base: int = 0, codec: int = 0, transactional: int = 0, producer_id: int = -1) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer_id, 0, 0, 10_000_000)
    for number, (time, key, value, headers) in enumerate(records):
        assert builder.append(number, time, key, value, headers) is not None
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    return bytes(data)


def expected(records: list[Any], base: int) -> list[Message]:
    return [
        Message(topic="t", partition=3, offset=base + at, key=key, value=value, headers=tuple(headers), time=instant(time))
        for at, (time, key, value, headers) in enumerate(records)
    ]


@settings(deadline=None, max_examples=60)
@given(
    records=RECORDS, base=st.integers(0, 2**40), codec=st.sampled_from([0, 1, 2, 3, 4]), start=st.integers(0, 5), limit=st.integers(1, 50)
)
def test_what_was_written_is_read(records: list[Any], base: int, codec: int, start: int, limit: int) -> None:
    messages, behind = read(PARTITION, batch(records, base=base, codec=codec), base + start, limit)

    wanted = expected(records, base)[start : start + limit]
    assert messages == wanted
    assert behind == (wanted[-1].offset + 1 if wanted and len(wanted) == limit else max(base + len(records), base + start))


def test_reading_goes_on_behind_the_batch() -> None:
    one, two = batch([(1, b"k", b"a", [])]), batch([(1, b"k", b"b", [])], base=1)

    first, behind = read(PARTITION, one + two, 0, 10)
    second, end = read(PARTITION, one + two, behind, 10)

    assert [message.value for message in (*first, *second)] == [b"a", b"b"]
    assert (behind, end) == (1, 2)


def test_an_aborted_batch_is_skipped_and_a_committed_one_is_not() -> None:
    data = batch([(1, b"k", b"a", [])], transactional=1, producer_id=7)

    assert read(PARTITION, data, 0, 10, aborted={7}) == ([], 1)
    assert [message.value for message in read(PARTITION, data, 0, 10, aborted={8})[0]] == [b"a"]


def test_an_incomplete_batch_is_not_touched() -> None:
    data = batch([(1, b"k", b"a" * 100, [])])

    assert read(PARTITION, data[:-1], 0, 10) == ([], 0)
    assert read(PARTITION, b"", 5, 10) == ([], 5)


@settings(deadline=None, max_examples=200)
@given(at=st.integers(17, 200), bit=st.integers(0, 7))
def test_a21_every_flipped_bit_behind_the_length_is_noticed(at: int, bit: int) -> None:
    data = bytearray(batch([(1, b"k", b"v" * 200, [("h", b"v")])] * 3, base=10))
    data[at] ^= 1 << bit

    with pytest.raises(Unreadable) as raised:
        read(PARTITION, bytes(data), 10, 10)

    assert raised.value.offset == 10
    assert raised.value.next_offset > 10
    assert raised.value.raw == bytes(data)


@pytest.mark.parametrize("body", [b"", b"\x02", b"\xff" * 30, b"\x80" * 40])
def test_records_that_end_too_early_are_unreadable(body: bytes) -> None:
    data = bytearray(batch([(1, b"k", b"v", [])])[:61] + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))

    with pytest.raises(Unreadable):
        read(PARTITION, bytes(data), 0, 10)


def test_the_old_formats_are_unreadable_by_hand() -> None:
    data = bytearray(batch([(1, b"k", b"v", [])], base=5))
    data[16] = 1

    with pytest.raises(Unreadable, match="format 1") as raised:
        read(PARTITION, bytes(data), 5, 10)

    assert raised.value.next_offset == 6

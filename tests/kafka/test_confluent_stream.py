"""What is kept of a partition between the thread that adds and the loop that takes: each rule alone, without a broker."""

import pytest
from confluent_kafka import Message as Record

from consumer_idem.errors import OffsetOutOfRange, Unreadable
from consumer_idem.kafka._confluent_consumer import ConsumerThread
from consumer_idem.kafka._confluent_stream import _FULL, _FULL_BYTES, _HUNGRY, Stream
from consumer_idem.message import Partition

PARTITION = Partition("payments", 0)


def record(offset: int, size: int = 1) -> Record:
    return Record(topic="payments", partition=0, offset=offset, key=b"k", value=b"v" * size, timestamp=(1, 1))


def stream(start: int | None = 0) -> Stream:
    """A stream that expects `start` next, and whose lane has been told so."""
    made = Stream(PARTITION)
    made.restart(start)
    if start is not None:
        made.seek(start)
    return made


def taken(stream: Stream, limit: int = 10_000) -> list[int]:
    return [message.offset for message in stream.take(limit)]


def test_nothing_is_kept_that_nobody_waits_for():
    unplaced = stream(None)

    assert not unplaced.add(record(0))
    assert not unplaced.break_off("damage")
    assert (unplaced.empty, unplaced.hungry, unplaced.read_to) == (True, False, None)


def test_what_has_been_here_before_is_not_kept_again():
    placed = stream(5)

    assert [placed.add(record(offset)) for offset in (4, 5, 5, 7, 6, 8)] == [False, True, False, True, False, True]
    assert taken(placed) == [5, 7, 8]


def test_behind_an_error_nothing_is_kept_until_somebody_seeks():
    broken = stream()
    broken.add(record(0))
    assert broken.break_off("first")

    assert not broken.add(record(1))
    assert not broken.break_off("second")
    assert taken(broken) == [0]
    for _ in range(2):
        with pytest.raises(Unreadable, match="first") as error:
            broken.take(10)
        assert (error.value.offset, error.value.next_offset) == (1, 2)
    broken.restart(2)
    assert broken.add(record(2))
    assert taken(broken) == [2]


def test_an_error_of_the_client_comes_in_its_place():
    broken = stream()
    broken.add(record(0))
    broken.break_off(OffsetOutOfRange())

    assert taken(broken) == [0]
    with pytest.raises(OffsetOutOfRange):
        broken.take(10)


def test_it_is_full_and_drained_by_number():
    filled = stream()
    for offset in range(_FULL - 1):
        filled.add(record(offset))
    assert not filled.full
    filled.add(record(_FULL - 1))

    assert (filled.full, filled.drained) == (True, False)
    taken(filled, _FULL // 2 - 1)
    assert (filled.full, filled.drained) == (False, False)
    taken(filled, 1)
    assert filled.drained


def test_it_is_full_and_drained_by_bytes():
    filled = stream()
    for offset in range(3):
        filled.add(record(offset, _FULL_BYTES // 4))
    assert (filled.full, filled.hungry) == (False, True)
    filled.add(record(3, _FULL_BYTES // 4))

    assert (filled.full, filled.drained, filled.hungry) == (True, False, False)
    taken(filled, 1)
    assert (filled.full, filled.drained) == (False, False)
    taken(filled, 1)
    assert filled.drained
    filled.restart(0)
    assert (filled.full, filled.drained, filled.hungry) == (False, True, True)


def test_it_is_hungry_while_little_is_kept():
    fed = stream()
    for offset in range(_HUNGRY - 1):
        fed.add(record(offset))
    assert fed.hungry
    fed.add(record(_HUNGRY))

    assert not fed.hungry


def test_a_broken_one_is_full_and_neither_hungry_nor_drained():
    broken = stream()
    broken.break_off("damage")

    assert (broken.full, broken.hungry, broken.drained) == (True, False, False)


def test_where_the_log_ended_counts_once_all_is_taken():
    placed = stream()
    placed.add(record(0))
    placed.end = 3
    before = placed.read_to
    placed.next = taken(placed)[-1] + 1

    assert (before, placed.read_to) == (0, 3)
    placed.add(record(3))
    placed.next = taken(placed)[-1] + 1
    assert placed.read_to == 4
    placed.restart(1)
    placed.seek(1)
    assert placed.read_to == 1


class Rebalancing:
    """A client whose partition goes and comes back, to be read from `start`, while more is asked for."""

    def __init__(self, thread: ConsumerThread, start: int) -> None:
        self._thread = thread
        self._start = start

    def poll(self, _: float) -> Record:
        return record(7)

    def consume(self, _: int, __: float) -> list[Record]:
        self._thread._streams[PARTITION] = stream(self._start)
        return []


async def test_what_was_polled_before_a_rebalance_is_not_kept_behind_it():
    """It would stand for all that lies between the new start and itself: that would never be read."""
    thread = ConsumerThread({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, None, incremental=False, pause=1)
    thread._consumer.close()
    thread._streams[PARTITION] = stream(7)
    thread._consumer = Rebalancing(thread, start=3)

    thread._fetch()

    assert thread._streams[PARTITION].empty

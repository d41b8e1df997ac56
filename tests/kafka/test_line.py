"""What may be sent next to one Kafka partition, whatever the client answers."""

import asyncio
import time
import uuid
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_idem.kafka._line import BATCH_BYTES, Answers, Line, TooLarge, size
from consumer_idem.message import OutboxRecord
from consumer_idem.ports import Delivered, Delivery, FailureKind, NotDelivered

LOST = NotDelivered(FailureKind.RETRIABLE, "lost")
UNFIT = NotDelivered(FailureKind.RECORD, "unfit")


def record(number: int, length: int = 10) -> OutboxRecord:
    return OutboxRecord(id=uuid.uuid4(), topic="t", key=b"k", value=b"%d" % number + b"x" * length)


class Partition:
    """A partition as a broker would keep it: a batch is written whole or not at all."""

    def __init__(self, unfit: set[uuid.UUID], lose: Sequence[bool] = (), limit: int = 10**9) -> None:
        self.log: list[uuid.UUID] = []
        self.sends = 0
        self._unfit = unfit
        self._lose = list(lose)
        self._limit = limit

    async def send(self, batch: Sequence[OutboxRecord]) -> Answers:
        self.sends += 1
        await asyncio.sleep(0)
        if self._lose and self._lose.pop(0):
            return [LOST] * len(batch)
        if sum(map(size, batch)) > self._limit:
            return [TooLarge(FailureKind.RECORD, "too large")] * len(batch)
        if any(record.id in self._unfit for record in batch):
            return [UNFIT] * len(batch)
        start = len(self.log)
        self.log += [record.id for record in batch]
        return list(range(start, start + len(batch)))


def soon() -> float:
    return time.monotonic() + 10


def outcome(deliveries: Sequence[Delivery]) -> str:
    return "".join("d" if isinstance(delivery, Delivered) else delivery.kind.value[0].upper() for delivery in deliveries)


@settings(deadline=None)
@given(
    count=st.integers(1, 40),
    unfit=st.sets(st.integers(0, 39)),
    lose=st.lists(st.booleans(), max_size=8),
    limit=st.sampled_from([10**9, 400]),
)
def test_nothing_is_delivered_behind_a_record_that_is_not(count: int, unfit: set[int], lose: list[bool], limit: int) -> None:
    records = [record(number) for number in range(count)]
    partition = Partition({records[number].id for number in unfit if number < count}, lose, limit)

    deliveries = asyncio.run(Line(0, partition.send).deliver(records, soon()))

    delivered = [record.id for record, delivery in zip(records, deliveries, strict=True) if isinstance(delivery, Delivered)]
    assert partition.log == delivered == [record.id for record in records[: len(delivered)]]
    first = len(delivered)
    if first < count and LOST not in deliveries and not any(lose):
        assert deliveries[first].kind is FailureKind.RECORD  # type: ignore[union-attr]
        assert first in unfit


async def test_the_unfit_record_is_found_by_halves() -> None:
    records = [record(number) for number in range(1000)]
    partition = Partition({records[700].id})

    deliveries = await Line(0, partition.send).deliver(records, soon())

    assert outcome(deliveries) == "d" * 700 + "R" * 300
    assert [delivery.kind for delivery in deliveries[700:702] if isinstance(delivery, NotDelivered)] == [
        FailureKind.RECORD,
        FailureKind.RETRIABLE,
    ]
    assert partition.sends < 25


async def test_batches_stay_below_their_limit_but_for_single_records() -> None:
    records = [record(0, 300_000), record(1, 300_000), record(2, 300_000), record(3, 2_000_000), record(4)]
    sent: list[list[OutboxRecord]] = []

    async def send(batch: Sequence[OutboxRecord]) -> Answers:
        sent.append(list(batch))
        return list(range(len(batch)))

    await Line(0, send).deliver(records, soon())

    assert [len(batch) for batch in sent] == [2, 1, 1, 1]
    assert all(len(batch) == 1 or sum(map(size, batch)) <= BATCH_BYTES for batch in sent)


async def test_a_batch_under_way_is_waited_for_and_not_sent_again() -> None:
    answered = asyncio.Event()
    sent: list[list[OutboxRecord]] = []

    async def send(batch: Sequence[OutboxRecord]) -> Answers:
        sent.append(list(batch))
        await answered.wait()
        return list(range(len(batch)))

    line, records = Line(4, send), [record(number) for number in range(3)]
    late = await line.deliver(records, time.monotonic() + 0.05)
    again = asyncio.create_task(line.deliver([*records, record(3)], soon()))
    await asyncio.sleep(0)
    answered.set()

    assert outcome(late) == "RRR"
    assert await again == [Delivered(4, 0), Delivered(4, 1), Delivered(4, 2), Delivered(4, 0)]
    assert [len(batch) for batch in sent] == [3, 1]


async def test_other_records_wait_for_a_batch_under_way() -> None:
    answered = asyncio.Event()
    sent: list[uuid.UUID] = []

    async def send(batch: Sequence[OutboxRecord]) -> Answers:
        await answered.wait()
        sent.extend(record.id for record in batch)
        return list(range(len(batch)))

    line, first, second = Line(0, send), record(0), record(1)
    await line.deliver([first], time.monotonic() + 0.05)
    waiting = asyncio.create_task(line.deliver([second], soon()))
    await asyncio.sleep(0.01)
    answered.set()

    assert outcome(await waiting) == "d"
    assert sent == [first.id, second.id]


async def test_a_client_that_raises_does_not_block_the_line() -> None:
    calls = 0

    async def send(batch: Sequence[OutboxRecord]) -> Answers:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("planted")
        return list(range(len(batch)))

    line = Line(0, send)
    try:
        await line.deliver([record(0)], soon())
    except RuntimeError:
        pass

    assert outcome(await line.deliver([record(1)], soon())) == "d"

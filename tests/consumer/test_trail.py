"""A log that is cut off and grows again, in every order of events: nothing in it is passed over, and nothing is called cut that is not."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import takewhile
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_idem.consumer import trail as trail_module
from consumer_idem.consumer.trail import Trail
from consumer_idem.errors import KafkaUnavailable, LogCut, OffsetOutOfRange, Unreadable
from consumer_idem.message import Mark, Message, Partition
from consumer_idem.ports import Bounds
from tests.consumer.memory_log import MemoryLog, make_lane
from tests.shop import open_shop, payment

PARTITION = Partition("t", 0)


class Log:
    """A partition with its elections, and a client that fetches ahead of what is polled."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.earliest = self.end = self.epoch = self.made = 0
        self.damaged: set[int] = set()
        self.position = self.calls = 0
        self.fetched: list[Message] = []
        self.meanwhile: list[tuple[Any, ...]] = []
        self.failing: int | None = None
        self.lags = False

    def call(self) -> None:
        """Fail if this is the call that shall."""
        self.calls += 1
        if self.calls - 1 == self.failing:
            raise KafkaUnavailable

    def later(self, *event: Any) -> None:
        """Let something happen between two fetches of one poll."""
        self.meanwhile.append(event)

    def write(self, count: int = 1, *, known: bool = True) -> None:
        for _ in range(count):
            epoch = self.epoch if known else None
            self.messages.append(Message(topic="t", partition=0, offset=self.end, value=b"%d" % self.made, leader_epoch=epoch))
            self.end, self.made = self.end + 1, self.made + 1

    def elect(self) -> None:
        self.epoch += 1

    def cut(self, offset: int) -> None:
        self.end = max(self.earliest, min(offset, self.end))
        self.messages = [message for message in self.messages if message.offset < self.end]
        self.elect()

    def retain(self, offset: int) -> None:
        self.earliest = max(self.earliest, min(offset, self.end))
        self.messages = [message for message in self.messages if message.offset >= self.earliest]

    def compact(self, offset: int) -> None:
        self.messages = [message for message in self.messages if message.offset != offset]

    def fetch(self, count: int = 3) -> None:
        start = self.fetched[-1].offset + 1 if self.fetched else self.position
        if self.earliest <= start <= self.end:
            self.fetched += [message for message in self.messages if message.offset >= start][:count]

    async def seek(self, partition: Partition, offset: int) -> None:
        self.call()
        self.position, self.fetched = offset, []

    async def poll(self, partition: Partition, limit: int, timeout: timedelta) -> Sequence[Message]:
        self.call()
        if self.lags:
            self.lags = False
            raise OffsetOutOfRange
        if not self.fetched:
            if not self.earliest <= self.position <= self.end:
                raise OffsetOutOfRange
            self.fetch()
            while self.meanwhile:
                name, *args = self.meanwhile.pop(0)
                getattr(self, name)(*args)
            self.fetch()
        found, self.fetched = self.fetched[:limit], self.fetched[limit:]
        if found:
            self.position = found[-1].offset + 1
            if found[0].offset in self.damaged:
                raise Unreadable(partition, found[0].offset, found[0].offset + 1, error="damaged")
        return found

    async def bounds(self, partition: Partition) -> Bounds:
        self.call()
        return Bounds(self.earliest, self.end, self.end)


@dataclass
class Reader:
    """A lane without a database: what a trail returns is settled, and what a lane keeps of it is kept. `old` ones keep no marks."""

    log: Log
    next: int = 0
    mark: Mark | None = None
    settled: list[bytes | None] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    trail: Trail | None = None

    async def take(self) -> None:
        if self.log.end < self.next:
            self.next, self.mark = self.log.earliest, None
        self.next = max(self.next, self.log.earliest)
        self.trail = Trail(self.log, PARTITION)  # type: ignore[arg-type]
        await self.trail.start(self.next, self.mark, self.log.earliest)

    async def turn(self, *, old: bool = False) -> None:
        if self.trail is None:
            await self.take()
        assert self.trail is not None
        try:
            messages = await self.trail.poll(4, timedelta(0))
        except LogCut as cut:
            self.cuts.append(cut.offset)
            self.next, self.mark = min(self.next, cut.offset), cut.mark
            return await self.take()
        except OffsetOutOfRange:
            return await self.take()
        for message in messages:
            self.settled.append(message.value)
            self.next = message.offset + 1
            if message.leader_epoch is not None and not old:
                self.mark = Mark(message.offset, message.leader_epoch)
        return None

    async def drain(self, turns: int = 200, *, old: bool = False) -> None:
        for _ in range(turns):
            await self.turn(old=old)

    def restart(self) -> None:
        self.trail = None

    @property
    def passed_over(self) -> list[bytes | None]:
        return [message.value for message in self.log.messages if message.value not in self.settled]


WHERE = st.integers(0, 30)
KEPT: Any = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 9)),
    st.tuples(st.just("elect")),
    st.tuples(st.just("retain"), WHERE),
    st.tuples(st.just("compact"), WHERE),
)
LOST = KEPT | st.tuples(st.just("cut"), WHERE)
READ: Any = st.one_of(st.tuples(st.just("fetch"), st.integers(1, 9)), st.tuples(st.just("turn")), st.tuples(st.just("restart")))


def at_once_or_later(events: Any) -> Any:
    return events | events.map(lambda event: ("later", *event))


async def play(reader: Reader, events: Sequence[tuple[Any, ...]]) -> None:
    for name, *args in events:
        if name == "turn":
            await reader.turn(**dict(args))
        elif name == "restart":
            reader.restart()
        else:
            getattr(reader.log, name)(*args)
    await reader.drain()


@settings(deadline=None, max_examples=600)
@given(st.lists(at_once_or_later(LOST) | READ, max_size=40), st.booleans())
def test_a13_whatever_a_log_loses_nothing_that_it_holds_is_passed_over(events: Sequence[tuple[Any, ...]], quiet: bool):
    reader = Reader(Log())
    with patch.object(trail_module, "_QUIET", 0.0 if quiet else 60.0):
        asyncio.run(play(reader, events))
        if not quiet:
            # It may have grown to just where it was. Then, what tells is the next message.
            reader.log.write()
            asyncio.run(reader.drain())
            reader.log.write()
            asyncio.run(reader.drain())

    assert reader.passed_over == []
    assert not reader.cuts or "cut" in {word for event in events for word in event}


OLD_BUILD = st.tuples(st.just("turn"), st.just(("old", True)))


@settings(deadline=None, max_examples=600)
@given(st.lists(at_once_or_later(KEPT) | READ | OLD_BUILD, max_size=40), st.booleans())
def test_a13_a_log_that_lost_nothing_is_never_called_cut_whichever_builds_have_read_it(events: Sequence[tuple[Any, ...]], quiet: bool):
    reader = Reader(Log())
    with patch.object(trail_module, "_QUIET", 0.0 if quiet else 60.0):
        asyncio.run(play(reader, events))

    assert reader.cuts == []
    assert reader.passed_over == []
    # Nor is anything settled twice: what is read again to compare is not handed on.
    assert len(reader.settled) == len(set(reader.settled))


async def grown_beyond(*, restart: bool, length: int = 20, at: int = 12) -> Reader:
    reader = Reader(Log())
    reader.log.write(length)
    await reader.drain()
    reader.log.cut(at)
    reader.log.write(length)
    if restart:
        reader.restart()
    return reader


@pytest.mark.parametrize("restart", [True, False])
async def test_a13_a_log_that_has_grown_again_is_read_from_where_it_was_cut(restart: bool):
    reader = await grown_beyond(restart=restart)
    await reader.drain()

    assert reader.cuts == [12]
    assert reader.passed_over == []
    assert len(reader.settled) == 40


async def test_a13_a_cut_is_found_where_the_last_settled_message_is_compacted_away():
    reader = await grown_beyond(restart=True)
    reader.log.compact(19)
    await reader.drain()

    assert (reader.cuts, reader.passed_over) == ([12], [])


async def test_a13_a_cut_below_what_an_old_build_has_read_is_found_below_the_mark_of_a_newer():
    reader = Reader(Log())
    reader.log.write(10)
    await reader.drain()
    reader.restart()
    reader.log.write(10)
    await reader.drain(old=True)
    assert (reader.next, reader.mark) == (20, Mark(9, 0))
    reader.restart()
    reader.log.cut(5)
    reader.log.write(30)
    await reader.drain()

    assert (reader.cuts, reader.passed_over) == ([5], [])


async def test_a_client_that_tells_no_epochs_is_read_as_before():
    reader = Reader(Log())
    for _ in range(3):
        reader.log.write(5, known=False)
        await reader.drain()
        reader.restart()
    reader.log.write(5)
    await reader.drain()

    assert (reader.mark, reader.cuts) == (Mark(19, 0), [])
    assert len(reader.settled) == 20


async def test_a_last_settled_message_that_is_damaged_since_hides_nothing_behind_it():
    reader = Reader(Log())
    reader.log.write(10)
    await reader.drain()
    reader.log.damaged.add(9)
    reader.restart()
    reader.log.elect()
    reader.log.write(3)
    await reader.drain()

    assert (reader.cuts, reader.passed_over) == ([], [])
    assert len(reader.settled) == 13


async def test_a13_a_replica_that_lags_behind_while_a_cut_is_looked_for_hides_nothing():
    """A follower that is read from says out of range of what it does not have yet: the mark is not deleted for that."""
    reader = await grown_beyond(restart=False)
    while reader.trail is None or reader.trail._asked is None:
        await reader.turn()
    reader.log.lags = True
    await reader.drain()

    assert (reader.cuts, reader.passed_over) == ([12], [])


async def test_a13_a_second_cut_before_anything_is_settled_behind_the_first_is_found():
    reader = await grown_beyond(restart=True)
    while not reader.cuts:
        await reader.turn()
    reader.restart()
    reader.log.cut(5)
    reader.log.write(30)
    await reader.drain()

    assert (reader.cuts, reader.passed_over) == ([12, 5], [])


@pytest.mark.parametrize("restart", [True, False])
async def test_a13_a_log_that_has_grown_to_where_it_was_is_found_out_at_the_start_or_when_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch, restart: bool
):
    reader = Reader(Log())
    reader.log.write(10)
    await reader.drain()
    if restart:
        reader.restart()
    else:
        monkeypatch.setattr(trail_module, "_QUIET", 0.0)
    reader.log.cut(9)
    reader.log.write()
    await reader.drain()

    assert (reader.cuts, reader.passed_over) == ([9], [])


async def test_a13_a_cut_between_two_fetches_of_one_poll_is_found():
    reader = Reader(Log())
    reader.log.write(10)
    await reader.drain()
    reader.log.write(1)
    reader.log.elect()
    reader.log.write(1)
    # The first look at the mark is interrupted: what it saw is gone when the next messages come.
    while reader.trail is None or reader.trail._asked is None:
        await reader.turn()
    reader.log.later("cut", 11)
    reader.log.later("write", 5)
    reader.log.later("cut", 9)
    reader.log.later("write", 9)
    await reader.drain()

    assert reader.passed_over == []


@pytest.mark.parametrize("call", range(16))
@pytest.mark.parametrize("restart", [True, False])
async def test_a_call_that_fails_while_a_cut_is_looked_for_loses_nothing(restart: bool, call: int):
    reader = await grown_beyond(restart=restart)
    reader.log.failing = reader.log.calls + call
    with pytest.raises(KafkaUnavailable):
        await reader.drain()
    await reader.drain()

    assert (reader.cuts, reader.passed_over) == ([12], [])


@pytest.mark.parametrize("topic_id", [UUID(int=7), None])
async def test_a13_a_lane_goes_back_to_the_cut_or_to_the_start_where_it_may_be_another_topic(dsn: str, topic_id: UUID | None):
    async def same(topic: str) -> UUID | None:
        return topic_id

    async with open_shop(dsn) as shop:
        log = MemoryLog([replace(payment(offset), leader_epoch=0) for offset in range(10)])
        log.topic_id = same  # type: ignore[method-assign]
        lane = await make_lane(shop, log)
        while lane.watermark != 10:
            await lane.run_once()
        log.messages[6:] = [replace(payment(offset, f"n{offset}"), leader_epoch=1) for offset in range(6, 14)]
        log.polled.clear()
        while lane.watermark != 14:
            await lane.run_once()

        assert await shop.payments() == sorted([*(f"p{offset}" for offset in range(10)), *(f"n{offset}" for offset in range(6, 14))])
        assert await shop.rows("SELECT max(incarnation) FROM idem.topic") == [1 if topic_id else 2]
        assert await shop.rows("SELECT mark_offset, mark_epoch FROM idem.progress ORDER BY topic DESC LIMIT 1") == [(13, 1)]
        assert await shop.rows("SELECT count(*) FROM idem.duplicate") == [0 if topic_id else 6]


async def test_a_mark_moves_only_with_the_progress(dsn: str):
    async with open_shop(dsn) as shop:
        lane = await shop.lane()
        await lane.process(*(replace(payment(offset), leader_epoch=3) for offset in range(6)))
        lane.seal.watermark = 0
        # Delivered again from further back, as where Kafka's offset is the lower one.
        await lane.process(*(replace(payment(offset), leader_epoch=2) for offset in range(2)))
        marks = await shop.rows("SELECT mark_offset, mark_epoch FROM idem.progress")
        lane.seal.watermark = 6
        await lane.process(payment(6))

        assert marks == [(5, 3)]
        # A message without an epoch moves the progress alone, as a build without marks does.
        assert await shop.rows("SELECT next_offset, mark_offset, mark_epoch FROM idem.progress") == [(7, 5, 3)]


class DamagedLog(MemoryLog):
    """A log in which values that begin with `!` cannot be read."""

    async def topic_id(self, topic: str) -> UUID | None:
        return UUID(int=7)

    async def poll(self, partition: Partition, limit: int, timeout: timedelta) -> Sequence[Message]:
        found = await super().poll(partition, limit, timeout)
        readable = list(takewhile(lambda message: not str(message.value, "utf-8").startswith("!"), found))
        if len(readable) < len(found):
            damaged = found[len(readable)]
            self.position = damaged.offset
            if not readable:
                raise Unreadable(partition, damaged.offset, damaged.offset + 1, error="damaged", raw=damaged.value)
        return readable


def lying(offset: int, text: str | None = None) -> Message:
    """What came behind the cut, under the next leader: payment n<offset>, or bytes that cannot be read."""
    message = replace(payment(offset, f"n{offset}"), leader_epoch=1)
    return message if text is None else replace(message, value=text.encode())


@pytest.mark.parametrize("damaged", [(9,), (5, 6)])
async def test_a13_what_cannot_be_read_hides_no_cut_and_is_kept(dsn: str, damaged: Sequence[int]):
    """At the place of the last settled message it hid the cut; right behind the cut it was passed over."""
    async with open_shop(dsn) as shop:
        log = DamagedLog([replace(payment(offset), leader_epoch=0) for offset in range(10)])
        lane = await make_lane(shop, log)
        while lane.watermark != 10:
            await lane.run_once()
        log.messages[5:] = [lying(offset, "!" if offset in damaged else None) for offset in range(5, 14)]
        async with asyncio.timeout(20):
            while lane.watermark != 14:
                await lane.run_once()

        new = [f"n{offset}" for offset in range(5, 14) if offset not in damaged]
        assert await shop.payments() == sorted([*(f"p{offset}" for offset in range(10)), *new])
        assert await shop.rows('SELECT "offset" FROM idem.quarantine ORDER BY 1') == list(damaged)

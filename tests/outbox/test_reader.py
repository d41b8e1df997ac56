"""What the reader passes over comes back."""

from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from consumer_idem.outbox import horizon
from consumer_idem.outbox.backlog import Backlog
from consumer_idem.outbox.lease import Lease
from consumer_idem.outbox.nap import Nap
from consumer_idem.outbox.reader import Reader
from consumer_idem.outbox.shard import SHARDS
from consumer_idem.outbox.table import Outbox
from consumer_idem.outbox.window import Limits, Window
from consumer_idem.ports import Delivered, FailureKind, NotDelivered
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from tests.outbox.scene import record

ALL = list(range(SHARDS))
NEVER = timedelta(hours=1)


class Desk:
    """A reader with its window, driven by hand."""

    def __init__(self, database: AsyncpgDatabase, limits: Limits) -> None:
        owner = uuid4()
        self.window = Window(limits)
        backlog = Backlog(database, "idem", owner)
        nap = Nap(Lease(database, "idem", owner, timedelta(minutes=1)))
        self.reader = Reader(backlog, self.window, nap, limits, (NEVER, NEVER, NEVER))

    async def read(self) -> list[int]:
        """Read and take in a page; return the numbers that are its records' values."""
        await self.reader.watch()
        page = await self.reader.read(ALL)
        self.reader.admit(page)
        return [int(entry.record.value) for entry in page.entries]  # type: ignore[union-attr, arg-type]

    def answer(self, topic: str, answer: Delivered | NotDelivered, now: float) -> None:
        """Send what may go, and give the topic's flight this answer."""
        for lane in self.window.take_off(now):
            if lane.topic == topic:
                landing = self.window.land(lane, [answer] * len(lane.flight), now)
                self.window.forget(landing.acknowledged, landing.unfit)


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizon, "_STEP", 1)


async def _add(connection: asyncpg.Connection, *records: tuple[str, int]) -> None:
    async with connection.transaction():
        await Outbox().add(connection, [record(topic, number) for topic, number in records])


async def test_a_topic_that_is_full_is_read_on_once_it_has_room(database: AsyncpgDatabase, connection: asyncpg.Connection) -> None:
    desk = Desk(database, Limits(batch=2, queue=2))
    await _add(connection, ("t", 1), ("t", 2), ("t", 3), ("u", 10), ("u", 11))

    assert await desk.read() == [1, 2]
    assert await desk.read() == [10, 11]
    assert await desk.read() == []
    assert await desk.read() == []
    desk.answer("t", Delivered(0, 0), 0.0)
    await connection.execute("DELETE FROM idem.outbox WHERE value IN ('1', '2')")
    assert await desk.read() == [3]


async def test_a_held_topic_is_read_on_once_its_hold_ends(database: AsyncpgDatabase, connection: asyncpg.Connection) -> None:
    desk = Desk(database, Limits(batch=10))
    await _add(connection, ("t", 1), ("t", 2))
    assert await desk.read() == [1, 2]
    desk.answer("t", NotDelivered(FailureKind.TOPIC, "missing"), 0.0)
    await _add(connection, ("t", 3), ("u", 10))
    assert await desk.read() == [10]
    assert await desk.read() == []
    assert desk.window.end_holds(60.0) == ["t"]
    desk.reader.start_over()

    assert await desk.read() == [1, 2, 3]

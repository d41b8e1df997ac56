"""Seeded schedules of the relay's own code: nothing is lost, first occurrences are in order per key, and planted bugs are seen."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from consumer_idem.outbox.entry import Entry
from consumer_idem.outbox.flights import Flights
from consumer_idem.outbox.horizon import Floor, Horizon
from consumer_idem.outbox.lane import Landing, Lane
from consumer_idem.ports import Delivery
from tests.outbox.model import ModelConnection, World, complaints, ids_of, schedule

SCHEDULES = 100
"""In all, and at most until a planted bug must be seen."""


@pytest.mark.parametrize("block", range(2))
async def test_no_schedule_loses_a_record_or_turns_the_order_of_a_key(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(block * SCHEDULES // 2, (block + 1) * SCHEDULES // 2):
        world = await schedule(seed, monkeypatch)

        assert complaints(world) == [], f"seed {seed}"
        assert world.committed, f"seed {seed} tested nothing"


async def test_the_schedules_reach_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [await schedule(seed, monkeypatch) for seed in range(40)]

    assert any(world.takeovers for world in worlds), "no takeover"
    assert any(world.changes for world in worlds), "no parked record was retried or dropped"
    assert any(len(log) > len(set(log)) for world in worlds for log in world.log.values()), "no duplicate"


@pytest.mark.long
async def test_thousands_of_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1000, 11_000):
        assert complaints(await schedule(seed, monkeypatch)) == [], f"seed {seed}"


async def _caught(monkeypatch: pytest.MonkeyPatch, word: str, plant: Callable[[World], None] | None = None) -> bool:
    for seed in range(SCHEDULES):
        world = await schedule(seed, monkeypatch, plant)
        if any(word in complaint for complaint in complaints(world)):
            return True
    return False


async def test_c1_planted_a_read_that_starts_where_the_last_one_ended_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Floor, last: int | None) -> None:
        self.value = last or self.value

    monkeypatch.setattr(Floor, "read", read)

    assert await _caught(monkeypatch, "behind")


async def test_c1_planted_a_floor_that_does_not_wait_for_open_transactions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Horizon, "passed", property(lambda self: self._open is not None))

    assert await _caught(monkeypatch, "behind")


async def test_c4_planted_relays_that_share_rows_instead_of_shards_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    busy: dict[int, str] = {}
    read = ModelConnection._read

    def skip_locked(self: ModelConnection, above: int, change: int, shards: Any, without: Any, known: str, *limits: int) -> Any:
        others = [id for id, actor in busy.items() if actor != self._actor]
        rows = read(self, 0, change, range(64), without, f"{known[:-1]},{','.join(map(str, others))}}}", *limits)
        busy.update({row["id"]: self._actor for row in rows if row["id"] is not None})
        return rows

    monkeypatch.setattr(ModelConnection, "_read", skip_locked)
    monkeypatch.setattr(
        ModelConnection, "_ours", lambda self, ids, *_: [self._world.rows[id] for id in ids_of(ids) if id in self._world.rows]
    )

    assert await _caught(monkeypatch, "behind", lambda _: busy.clear())


async def test_c6_planted_deleting_before_the_acknowledgement_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Flights._publish

    def plant(world: World) -> None:
        async def delete_first(self: Flights, entries: Sequence[Entry]) -> Sequence[Delivery]:
            for entry in entries:
                world.rows.pop(entry.id, None)
            return await publish(self, entries)

        monkeypatch.setattr(Flights, "_publish", delete_first)

    assert await _caught(monkeypatch, "lost", plant)


async def test_c7_planted_going_on_behind_a_failed_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    land = Lane.land

    def skip_failed(self: Lane, deliveries: Sequence[Delivery], now: float) -> Landing:
        landing = land(self, deliveries, now)
        failed = {entry.id for entry in landing.failed}
        rest = [entry for entry in self._queue if entry.id not in failed]
        self._queue = deque([*rest, *landing.failed])
        self._stuck.clear()
        return landing

    monkeypatch.setattr(Lane, "land", skip_failed)

    assert await _caught(monkeypatch, "behind")

"""A worker that makes no progress says so; one that waits on purpose does not."""

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from consumer_idem.consumer.health import Health, near_retention
from consumer_idem.errors import KafkaUnavailable
from consumer_idem.message import Partition
from consumer_idem.ports import Bounds
from consumer_idem.testing.waiting import eventually

PARTITION = Partition("payments", 0)


class Log:
    """Answers how far a partition reaches; the lane is the test's own."""

    def __init__(self) -> None:
        self.bounds_now: Bounds | None = Bounds(0, 10)
        self.lane: Any = SimpleNamespace(watermark=3, ended=False, waiting=False)

    async def bounds(self, partition: Partition) -> Bounds:
        if self.bounds_now is None:
            raise KafkaUnavailable
        return self.bounds_now


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def health(log: Log) -> Health:
    return Health(log, lambda: {PARTITION: log.lane}, patience=timedelta(milliseconds=50))  # type: ignore[arg-type]  # only bounds is asked


async def stuck_after_a_while(health: Health) -> bool:
    await health.run_once()
    began = health.seen[PARTITION].since
    await eventually(lambda: time.monotonic() > began + 0.06)
    await health.run_once()
    return health.stuck == [PARTITION]


async def test_a_lane_with_lag_that_does_not_move_is_stuck(health: Health, caplog: pytest.LogCaptureFixture):
    assert await stuck_after_a_while(health)
    assert [record.lag for record in caplog.records] == [7]


async def test_a_lane_that_moves_is_not(health: Health, log: Log):
    await health.run_once()
    log.lane.watermark = 4

    log.lane.watermark = 5
    await health.run_once()
    assert health.stuck == []


async def test_a_lane_without_lag_is_not(health: Health, log: Log):
    log.lane.watermark = 10

    assert not await stuck_after_a_while(health)


async def test_a_lane_that_waits_on_purpose_is_not(health: Health, log: Log):
    log.lane.waiting = True

    assert not await stuck_after_a_while(health)


async def test_a23_kafka_that_does_not_answer_makes_the_worker_unready_not_dead(health: Health, log: Log):
    log.bounds_now = None
    await health.run_once()

    assert (health.reachable, health.stuck) == (False, [])


@pytest.mark.parametrize(
    ("watermark", "bounds", "near"),
    [
        (100, Bounds(0, 1000), False),
        (100, Bounds(50, 1000), True),
        (900, Bounds(50, 1000), False),
        (1000, Bounds(1000, 1000), False),
    ],
)
def test_a30_lag_that_comes_near_the_retention_is_told(watermark: int, bounds: Bounds, near: bool):
    assert near_retention(watermark, bounds) is near

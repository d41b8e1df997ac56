"""A worker that makes no progress says so; one that waits on purpose does not."""

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from consumer_idem.consumer.health import Health, near_retention
from consumer_idem.errors import KafkaUnavailable, PartitionLost
from consumer_idem.message import Partition
from consumer_idem.ports import Bounds
from consumer_idem.testing.waiting import eventually

PARTITION = Partition("payments", 0)


class Log:
    """Answers how far a partition reaches; the lane is the test's own."""

    def __init__(self) -> None:
        self.bounds_now: Bounds | None = Bounds(0, 10, 10)
        self.lane: Any = SimpleNamespace(watermark=3, ended=False, waiting=False, idle=True)
        self.position: int | None = 3
        self.lost = False

    async def bounds(self, partition: Partition) -> Bounds:
        if self.bounds_now is None:
            raise KafkaUnavailable
        return self.bounds_now

    async def read_to(self, partition: Partition) -> int | None:
        if self.lost:
            raise PartitionLost
        return self.position


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def health(log: Log) -> Health:
    return Health(log, lambda: {PARTITION: log.lane}, patience=timedelta(milliseconds=50))  # type: ignore[arg-type]  # no more is asked


async def past_patience(health: Health) -> None:
    """Look, let the patience run out, look again."""
    await health.run_once()
    began = time.monotonic()
    await eventually(lambda: time.monotonic() > began + 0.06)
    await health.run_once()


def told_by_it(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """What it has logged; the loop may tell of what another test has left to the garbage collector."""
    return [record for record in caplog.records if record.name == "consumer_idem.consumer.health"]


async def stuck_after_a_while(health: Health) -> bool:
    await past_patience(health)
    return health.stuck == [PARTITION]


async def test_a_lane_with_lag_that_does_not_move_is_stuck(health: Health, caplog: pytest.LogCaptureFixture):
    assert await stuck_after_a_while(health)
    assert [record.lag for record in told_by_it(caplog)] == [7]


async def test_a_lane_that_moves_is_not(health: Health, log: Log):
    await health.run_once()
    log.lane.watermark = 4

    log.lane.watermark = 5
    await health.run_once()
    assert health.stuck == []


async def test_a_lane_without_lag_is_not(health: Health, log: Log):
    log.lane.watermark = 10
    log.position = None

    assert not await stuck_after_a_while(health)


async def test_a_lane_that_waits_on_purpose_is_not(health: Health, log: Log):
    log.lane.waiting = True

    assert not await stuck_after_a_while(health)


async def test_a_lane_behind_which_no_message_follows_has_no_lag(health: Health, log: Log):
    log.position = 10

    assert not await stuck_after_a_while(health)
    assert health.seen[PARTITION].lag == 0


async def test_what_is_polled_and_not_settled_is_lag(health: Health, log: Log):
    log.position, log.lane.idle = 10, False

    assert await stuck_after_a_while(health)


async def test_an_open_transaction_that_does_not_end_is_named_once_and_the_worker_is_not_stuck(
    health: Health, log: Log, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    log.position, log.bounds_now = 10, Bounds(0, 10, 14)
    await health.run_once()
    at_first = set(health.held_back)
    await past_patience(health)
    await health.run_once()

    assert (at_first, health.held_back, health.stuck) == (set(), {PARTITION}, [])
    (told,) = told_by_it(caplog)
    assert (told.levelname, told.partition, told.last_stable_offset, told.high_watermark) == ("ERROR", PARTITION, 10, 14)
    assert "abort --topic payments --partition 0 --start-offset 10" in told.do


async def test_a_transaction_that_has_ended_is_named_no_more(health: Health, log: Log, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    log.position, log.bounds_now = 10, Bounds(0, 10, 14)
    await past_patience(health)
    log.position, log.bounds_now = 15, Bounds(0, 15, 15)
    await health.run_once()
    await health.run_once()

    assert health.held_back == set()
    assert [record.message for record in told_by_it(caplog)][1:] == ["the partition is held back no more"]


async def test_an_open_transaction_is_not_named_while_there_is_something_before_it(health: Health, log: Log):
    log.bounds_now = Bounds(0, 10, 14)
    await past_patience(health)

    assert (health.held_back, health.stuck) == (set(), [PARTITION])


async def test_transactions_that_end_are_not_named(health: Health, log: Log):
    log.position, log.bounds_now = 10, Bounds(0, 10, 14)
    await past_patience(health)
    log.position, log.bounds_now = 14, Bounds(0, 14, 20)
    await health.run_once()

    assert health.held_back == set()


async def test_a_partition_that_is_given_away_meanwhile_says_nothing_about_kafka(health: Health, log: Log):
    log.lost = True
    await health.run_once()

    assert (health.reachable, health.seen) == (True, {})


async def test_a23_kafka_that_does_not_answer_makes_the_worker_unready_not_dead(health: Health, log: Log):
    log.bounds_now = None
    await health.run_once()

    assert (health.reachable, health.stuck) == (False, [])


@pytest.mark.parametrize(
    ("watermark", "bounds", "near"),
    [
        (100, Bounds(0, 1000, 1000), False),
        (100, Bounds(50, 1000, 1000), True),
        (900, Bounds(50, 1000, 1000), False),
        (1000, Bounds(1000, 1000, 1000), False),
    ],
)
def test_a30_lag_that_comes_near_the_retention_is_told(watermark: int, bounds: Bounds, near: bool):
    assert near_retention(watermark, bounds) is near

"""Whether a worker makes progress, and what stands in its way."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from consumer_idem import telemetry
from consumer_idem.consumer.lane import Lane
from consumer_idem.errors import ConsumerIdemError, PartitionLost
from consumer_idem.message import Partition
from consumer_idem.ports import Bounds, Subscriber

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How a lane was found: where it is and since when, how far the log reaches and since when what is readable ends there."""

    reached: int
    since: float
    bounds: Bounds
    end_since: float
    waiting: bool

    @property
    def lag(self) -> int:
        """How many offsets lie before the lane."""
        return max(0, self.bounds.end - self.reached)

    @property
    def held_back(self) -> int:
        """How many offsets are written behind the first open transaction of a producer."""
        return self.bounds.high_watermark - self.bounds.end


@dataclass(slots=True)
class Health:
    """Looks at every lane now and then. A lane with lag that has not moved for `patience` is stuck, unless it waits on purpose:
    for a retry that its handler asked for, or for the outbox to drain. One that has settled everything up to an open transaction
    of a producer, and finds it open for `patience`, is `held_back`: to join the group anew would change nothing.
    """

    subscriber: Subscriber
    lanes: Callable[[], Mapping[Partition, Lane]]
    patience: timedelta = timedelta(seconds=30)
    seen: dict[Partition, Seen] = field(default_factory=dict)
    held_back: set[Partition] = field(default_factory=set)
    reachable: bool = True

    async def run_once(self) -> int:
        """Look at every lane; log what is stuck, what is held back, and what comes near the topic's retention."""
        lanes = self.lanes()
        self.seen = {partition: seen for partition, seen in self.seen.items() if partition in lanes}
        self.held_back &= set(lanes)
        for partition, lane in lanes.items():
            if lane.watermark is not None and not lane.ended:
                await self._look(partition, lane)
        return 0

    @property
    def stuck(self) -> list[Partition]:
        """The partitions with lag and without progress."""
        return [partition for partition, seen in self.seen.items() if seen.lag and not seen.waiting and self._too_long(seen.since)]

    def _too_long(self, since: float) -> bool:
        return time.monotonic() - since > self.patience.total_seconds()

    async def _look(self, partition: Partition, lane: Lane) -> None:
        try:
            bounds = await self.subscriber.bounds(partition)
            reached = await self._reached(partition, lane)
        except PartitionLost:
            return
        except ConsumerIdemError as error:
            self.reachable = False
            log.warning("Kafka cannot be asked how far a partition reaches", extra={"partition": partition, "error": str(error)})
            return
        self.reachable = True
        self.seen[partition] = seen = _seen(self.seen.get(partition), reached, bounds, waiting=lane.waiting)
        telemetry.lag(partition, seen.lag, seen.held_back)
        self._tell(partition, seen)

    async def _reached(self, partition: Partition, lane: Lane) -> int:
        """Return the offset below which nothing is left to settle. What is no message moves no watermark, but is read all the same."""
        read_to = await self.subscriber.read_to(partition)
        watermark = lane.watermark or 0
        return watermark if read_to is None or not lane.idle else max(watermark, read_to)

    def _tell(self, partition: Partition, seen: Seen) -> None:
        if partition in self.stuck:
            log.error("lane has lag and makes no progress", extra={"partition": partition, "lag": seen.lag})
            telemetry.lane("stuck", partition)
        if near_retention(seen.reached, seen.bounds):
            left = seen.reached - seen.bounds.earliest
            log.error("lag comes near the topic's retention", extra={"partition": partition, "messages_until_lost": left})
            telemetry.lane("near-retention", partition)
        held_back = seen.held_back > 0 and not seen.lag and self._too_long(seen.end_since)
        if held_back and partition not in self.held_back:
            self.held_back.add(partition)
            log.error("an open transaction of a producer holds the partition back", extra=_advice(partition, seen.bounds))
            telemetry.lane("held-back", partition)
        elif not held_back and partition in self.held_back:
            self.held_back.remove(partition)
            log.info("the partition is held back no more", extra={"partition": partition})


def _seen(before: Seen | None, reached: int, bounds: Bounds, *, waiting: bool) -> Seen:
    """Keep the time since when nothing has changed; a lane without lag, or that waits on purpose, counts as one that moves."""
    now = time.monotonic()
    stands = before is not None and before.reached == reached and before.lag > 0 and not waiting
    held = before is not None and before.bounds.end == bounds.end and before.held_back > 0
    return Seen(
        reached=reached,
        since=before.since if before is not None and stands else now,
        bounds=bounds,
        end_since=before.end_since if before is not None and held else now,
        waiting=waiting,
    )


def _advice(partition: Partition, bounds: Bounds) -> dict[str, object]:
    topic, number = partition
    tool = "kafka-transactions.sh --bootstrap-server …"
    where = f"--topic {topic} --partition {number}"
    return {
        "partition": partition,
        "last_stable_offset": bounds.end,
        "high_watermark": bounds.high_watermark,
        "do": f"{tool} describe-producers {where} names its producer: let that end it. If there is none any more (find-hanging): "
        f"{tool} abort {where} --start-offset {bounds.end}",
    }


def near_retention(reached: int, bounds: Bounds) -> bool:
    """Tell whether a lane reads in the older half of a log that Kafka has begun to delete from."""
    return bounds.earliest > 0 and reached - bounds.earliest < (bounds.end - bounds.earliest) / 2 and reached < bounds.end

"""Whether a worker makes progress, and what stands in its way."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from consumer_idem import telemetry
from consumer_idem.consumer.lane import Lane
from consumer_idem.errors import ConsumerIdemError
from consumer_idem.message import Partition
from consumer_idem.ports import Bounds, Subscriber

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """How a lane was found: its watermark, since when it has been there, how far the log reaches."""

    watermark: int
    since: float
    bounds: Bounds
    waiting: bool

    @property
    def lag(self) -> int:
        """How many offsets lie before the lane."""
        return max(0, self.bounds.end - self.watermark)


@dataclass(slots=True)
class Health:
    """Looks at every lane now and then. A lane with lag whose watermark has not moved for `patience` is stuck, unless it waits
    on purpose: for a retry that its handler asked for, or for the outbox to drain.
    """

    subscriber: Subscriber
    lanes: Callable[[], Mapping[Partition, Lane]]
    patience: timedelta = timedelta(seconds=30)
    seen: dict[Partition, Seen] = field(default_factory=dict)
    reachable: bool = True

    async def run_once(self) -> int:
        """Look at every lane; log what is stuck and what comes near the topic's retention."""
        lanes = self.lanes()
        self.seen = {partition: seen for partition, seen in self.seen.items() if partition in lanes}
        for partition, lane in lanes.items():
            if lane.watermark is not None and not lane.ended:
                await self._look(partition, lane.watermark, waiting=lane.waiting)
        return 0

    @property
    def stuck(self) -> list[Partition]:
        """The partitions with lag and without progress."""
        now = time.monotonic()
        return [
            partition
            for partition, seen in self.seen.items()
            if seen.lag and not seen.waiting and now - seen.since > self.patience.total_seconds()
        ]

    async def _look(self, partition: Partition, watermark: int, *, waiting: bool) -> None:
        try:
            bounds = await self.subscriber.bounds(partition)
        except ConsumerIdemError as error:
            self.reachable = False
            log.warning("Kafka cannot be asked how far a partition reaches", extra={"partition": partition, "error": str(error)})
            return
        self.reachable = True
        before = self.seen.get(partition)
        moved = before is None or before.watermark != watermark or before.lag == 0 or waiting
        since = time.monotonic() if before is None or moved else before.since
        self.seen[partition] = Seen(watermark, since, bounds, waiting)
        telemetry.lag(partition, self.seen[partition].lag)
        if partition in self.stuck:
            log.error("lane has lag and makes no progress", extra={"partition": partition, "lag": self.seen[partition].lag})
            telemetry.lane("stuck", partition)
        if near_retention(watermark, bounds):
            left = watermark - bounds.earliest
            log.error("lag comes near the topic's retention", extra={"partition": partition, "messages_until_lost": left})
            telemetry.lane("near-retention", partition)


def near_retention(watermark: int, bounds: Bounds) -> bool:
    """Tell whether a lane reads in the older half of a log that Kafka has begun to delete from."""
    return bounds.earliest > 0 and watermark - bounds.earliest < (bounds.end - bounds.earliest) / 2 and watermark < bounds.end

"""A worker process's consumer: a lane for every partition it holds, and the offsets that Kafka is told."""

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import timedelta

from consumer_idem import failpoint, telemetry
from consumer_idem.consumer.lane import Lane
from consumer_idem.errors import ConsumerIdemError, OffsetCommitFailed
from consumer_idem.loop import Loop
from consumer_idem.message import Partition
from consumer_idem.ports import Subscriber

log = logging.getLogger(__name__)


class _Running:
    """A lane with its loop and task."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.stopped = False
        self.loop = Loop(f"lane {lane.partition.topic}/{lane.partition.number}", self._turn, idle=timedelta(0))
        self.task = asyncio.create_task(self.loop.run())

    async def _turn(self) -> int:
        done = await self.lane.run_once()
        if self.lane.ended:
            self.loop.stop()
        return done

    @property
    def gone(self) -> bool:
        """Whether it came to its end although nobody stopped it."""
        return not self.stopped and (self.lane.ended or self.task.done())

    def stop(self) -> None:
        self.stopped = True
        self.lane.stop()
        self.loop.stop()


class Worker:
    """Listens to a Subscriber's assignments. `drain` bounds how long a revoked lane may take to finish its transaction:
    what is not finished then is left to the fence.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        make_lane: Callable[[Partition], Lane],
        *,
        drain: timedelta = timedelta(seconds=10),
        commit_interval: timedelta = timedelta(milliseconds=200),
    ) -> None:
        self._subscriber = subscriber
        self._make_lane = make_lane
        self._drain = drain
        self._running: dict[Partition, _Running] = {}
        self._committed: dict[Partition, int] = {}
        self._committing = asyncio.Lock()
        self._duties: list[asyncio.Task[None]] = []
        self._revivals = Loop("lanes that ended", self._revive)
        self._commits = Loop("offsets", self._commit_offsets, idle=commit_interval)

    async def start(self, topics: Collection[str]) -> None:
        """Join the group; lanes start as partitions are assigned."""
        await self._subscriber.start(topics, self)
        self._duties = [asyncio.create_task(loop.run()) for loop in (self._commits, self._revivals)]

    async def stop(self) -> None:
        """Finish what is open, commit the offsets, leave the group."""
        self._revivals.stop()
        await self.revoked(tuple(self._running))
        self._commits.stop()
        await asyncio.gather(*self._duties)
        await self._subscriber.close()

    def lanes(self) -> dict[Partition, Lane]:
        """Return the lane of every partition that this worker has."""
        return {partition: running.lane for partition, running in self._running.items()}

    # AssignmentListener

    async def assigned(self, partitions: Collection[Partition]) -> None:
        """Start a lane for each partition; one that runs already starts anew, since the client forgot its position."""
        await self._end([partition for partition in partitions if partition in self._running], clean=True)
        for partition in partitions:
            log.info("partition assigned", extra={"partition": partition})
            self._running[partition] = _Running(self._make_lane(partition))

    async def revoked(self, partitions: Collection[Partition]) -> None:
        """Let the lanes finish, commit their offsets, give the partitions back."""
        held = [partition for partition in partitions if partition in self._running]
        ending = {partition: self._running[partition] for partition in held}
        await self._end(held, clean=True, forget=False)
        await self._commit_offsets({partition: running.lane for partition, running in ending.items()})
        for partition, running in ending.items():
            self._forget(partition, running)

    async def lost(self, partitions: Collection[Partition]) -> None:
        """Stop the lanes; another member may own the partitions, so no offset is committed."""
        await self._end([partition for partition in partitions if partition in self._running], clean=False)

    async def _revive(self) -> int:
        """Start a lane again that ended although the group still gives us its partition, e.g. asked during a rebalance."""
        gone = [(partition, running) for partition, running in self._running.items() if running.gone]
        for partition, running in gone:
            # Asked again afterwards: the partition may be on its way back, or its lane begun anew, while we waited.
            if await self._subscriber.holds(partition) and self._running.get(partition) is running and running.gone:
                log.warning("lane had ended, but the partition is ours; starting it again", extra={"partition": partition})
                self._running[partition] = _Running(self._make_lane(partition))
        return 0

    async def _end(self, partitions: Collection[Partition], *, clean: bool, forget: bool = True) -> None:
        by_partition = {partition: self._running[partition] for partition in partitions}
        ending = list(by_partition.values())
        for running in ending:
            running.stop()
        if ending:
            _, late = await asyncio.wait([running.task for running in ending], timeout=self._drain.total_seconds())
            for task in late:
                log.warning("lane did not finish in time and is left to the fence")
                task.cancel()
            for running in ending:
                if clean and running.task not in late:
                    await self._release(running.lane)
        if forget:
            for partition, running in by_partition.items():
                self._forget(partition, running)

    def _forget(self, partition: Partition, running: _Running) -> None:
        """Forget a lane that has ended, unless its partition has another by now."""
        if self._running.get(partition) is running:
            del self._running[partition]
            self._committed.pop(partition, None)

    async def _release(self, lane: Lane) -> None:
        try:
            await asyncio.wait_for(lane.release(), self._drain.total_seconds())
        except (ConsumerIdemError, TimeoutError):
            log.warning(
                "lane could not say that it stopped cleanly; its successor will look more carefully", extra={"partition": lane.partition}
            )

    # Offsets

    async def _commit_offsets(self, lanes: dict[Partition, Lane] | None = None) -> int:
        """Tell Kafka every watermark that moved; never fatal, since claims make a redelivery harmless."""
        async with self._committing:
            if lanes is None:
                lanes = {partition: running.lane for partition, running in self._running.items()}
            moved = {
                partition: watermark
                for partition, lane in lanes.items()
                if not lane.ended and (watermark := lane.watermark) is not None and watermark != self._committed.get(partition)
            }
            if not moved:
                return 0
            await failpoint.reached("offsets.before")
            try:
                await self._subscriber.commit(moved)
            except OffsetCommitFailed as error:
                telemetry.offsets_refused()
                log.warning("Kafka did not take the offsets; they are committed again later", extra={"error": str(error)})
                return 0
            self._committed.update({partition: offset for partition, offset in moved.items() if partition in self._running})
            await failpoint.reached("offsets.after")
            return 0

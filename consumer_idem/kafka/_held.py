"""What a subscriber knows of one partition while the group gives it to us."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

from consumer_idem.errors import PartitionLost
from consumer_idem.message import Partition

_T = TypeVar("_T")


class Held:
    """From `assigned` to `revoked` or `lost`. A partition that comes back is a new one: nothing of the old is left.

    `next` is the offset that the next message has at least, None until the lane has said where to start. `astray` says that
    the client stands elsewhere.
    """

    __slots__ = ("_awaited", "_lost", "astray", "next", "partition", "seeks")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.next: int | None = None
        self.seeks = 0
        self.astray = False
        self._lost = False
        self._awaited: set[asyncio.Future[None]] = set()

    @property
    def lost(self) -> bool:
        """Whether it is not ours any more."""
        return self._lost

    def seek(self, offset: int) -> None:
        """Start at `offset`, and end every wait for a change."""
        self.next = offset
        self.seeks += 1
        self.stir()

    def lose(self) -> None:
        """Mark it as gone: every wait ends with PartitionLost."""
        self._lost = True
        self.stir()

    def check(self) -> None:
        """Raise PartitionLost if it is gone."""
        if self._lost:
            raise PartitionLost(f"{self.partition.topic}/{self.partition.number} was given to another member.")

    def stir(self) -> None:
        """End every wait for a change."""
        for future in tuple(self._awaited):
            if not future.done():
                future.set_result(None)

    async def changed(self, timeout: timedelta) -> None:
        """Wait for a seek, a stir or a loss, at most `timeout`; raise PartitionLost if it is gone."""
        self.check()
        with self._change() as change:
            await asyncio.wait({change}, timeout=timeout.total_seconds())
        self.check()

    async def until_lost(self, timeout: timedelta) -> None:
        """Wait for `timeout`; raise PartitionLost as soon as it is gone."""
        clock = asyncio.get_running_loop().time
        end = clock() + timeout.total_seconds()
        while (left := end - clock()) > 0:
            await self.changed(timedelta(seconds=left))

    async def unless_changed(self, work: asyncio.Future[_T]) -> _T | None:
        """Return what `work` returns; None if a seek comes first, PartitionLost if the loss does. It is cancelled then."""
        self.check()
        try:
            with self._change() as change:
                both: list[asyncio.Future[Any]] = [work, change]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            self.check()
            return work.result() if work.done() else None
        finally:
            if work.done() and not work.cancelled():
                work.exception()  # seen, so that asyncio does not report it
            work.cancel()

    @contextmanager
    def _change(self) -> Iterator[asyncio.Future[None]]:
        future = asyncio.get_running_loop().create_future()
        self._awaited.add(future)
        try:
            yield future
        finally:
            self._awaited.discard(future)
            future.cancel()


@lru_cache(64)
def instant(milliseconds: int) -> datetime | None:
    """Return Kafka's timestamp as a datetime in UTC; None for -1, and for what no datetime can hold."""
    if milliseconds < 0:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def milliseconds(time: datetime) -> int:
    """Return `time` as Kafka writes it, never below zero."""
    return max(0, -(-time.timestamp() * 1000 // 1).__int__())

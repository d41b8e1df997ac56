"""Tells the listener what happens to the assignment: one thing at a time, within a budget, and never losing what it raises."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

from consumer_idem.message import Partition
from consumer_idem.ports import AssignmentListener

log = logging.getLogger(__name__)

_LAST_WORDS = 1.0


class Announcer:
    """Each call returns when the listener has returned, or when the budget is used up, since the group does not wait longer.

    A listener that is late with `revoked` or `lost` is cancelled: the fence in the database covers what it left. One that
    is late with `assigned` goes on in the background until the next announcement.
    """

    def __init__(self, listener: AssignmentListener, budget: timedelta) -> None:
        self._listener = listener
        self._budget = budget.total_seconds()
        self._running: asyncio.Task[None] | None = None

    async def assigned(self, partitions: Collection[Partition]) -> None:
        """Announce partitions that are ours now."""
        await self._announce("assigned", self._listener.assigned, partitions)

    async def revoked(self, partitions: Collection[Partition]) -> None:
        """Announce partitions that are about to be given away."""
        await self._announce("revoked", self._listener.revoked, partitions)
        await self._end_running()

    async def lost(self, partitions: Collection[Partition]) -> None:
        """Announce partitions that are gone already."""
        await self._announce("lost", self._listener.lost, partitions)
        await self._end_running()

    async def _announce(
        self, what: str, call: Callable[[Collection[Partition]], Awaitable[None]], partitions: Collection[Partition]
    ) -> None:
        await self._end_running()
        if not partitions:
            return
        self._running = asyncio.create_task(self._logged(what, call, partitions))
        done, _ = await asyncio.wait({self._running}, timeout=self._budget)
        if not done:
            log.warning("the listener used up its budget", extra={"event": what, "partitions": sorted(partitions)})

    async def _logged(self, what: str, call: Callable[[Collection[Partition]], Awaitable[None]], partitions: Collection[Partition]) -> None:
        try:
            await call(partitions)
        # Whatever it is, the client must go on: it would leave the group without a word to anybody.
        except Exception:
            log.exception("the listener failed", extra={"event": what, "partitions": sorted(partitions)})

    async def _end_running(self) -> None:
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait({self._running}, timeout=_LAST_WORDS)
        self._running = None

"""Releasing entries whose time has come, beside the lanes of a worker process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from consumer_idem.consumer.release import Releaser
from consumer_idem.loop import Loop

log = logging.getLogger(__name__)


class Releasing:
    """A task that releases what is due, unless `paused` says that the outbox must drain first: lanes wait for that too.

    `drain`: so long may a release take once it is asked to stop; then it is undone.
    """

    def __init__(self, releaser: Releaser, *, drain: timedelta, paused: Callable[[], Awaitable[bool]]) -> None:
        self._releaser = releaser
        self._drain = drain
        self._paused = paused
        self._loop = Loop("releases", self._run_once)
        self._task = asyncio.create_task(self._loop.run())

    async def _run_once(self) -> int:
        return 0 if await self._paused() else await self._releaser.run_once()

    async def stop(self) -> None:
        """Finish the release that is open, if it ends in time."""
        self._loop.stop()
        _, late = await asyncio.wait({self._task}, timeout=self._drain.total_seconds())
        if late:
            log.warning("a release did not finish in time; it is undone and comes again")
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=self._drain.total_seconds())

"""Releasing entries whose time has come, beside the lanes of a worker process."""

import asyncio
import logging
from datetime import timedelta

from consumer_idem.consumer.release import Releaser
from consumer_idem.loop import Loop

log = logging.getLogger(__name__)


class Releasing:
    """A task that releases what is due. `drain`: so long may a release take once it is asked to stop; then it is undone."""

    def __init__(self, releaser: Releaser, *, drain: timedelta) -> None:
        self._drain = drain
        self._loop = Loop("releases", releaser.run_once)
        self._task = asyncio.create_task(self._loop.run())

    async def stop(self) -> None:
        """Finish the release that is open, if it ends in time."""
        self._loop.stop()
        _, late = await asyncio.wait({self._task}, timeout=self._drain.total_seconds())
        if late:
            log.warning("a release did not finish in time; it is undone and comes again")
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=self._drain.total_seconds())

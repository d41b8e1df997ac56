"""The one loop: run_once until stopped, sleep when idle, back off on errors with full jitter."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

log = logging.getLogger(__name__)


class Loop:
    """Calls `run_once` again and again until `stop()`. It returns how much it did; zero means sleep for `idle`.

    An exception is logged and backed off from (full jitter, at most `max_backoff`), never swallowed for ever in silence.
    `wake()` ends a sleep early. The first call comes after `delay`.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[int]],
        *,
        idle: timedelta = timedelta(seconds=1),
        delay: timedelta = timedelta(0),
        max_backoff: timedelta = timedelta(seconds=10),
    ) -> None:
        self.name = name
        self._run_once = run_once
        self._idle = idle
        self._delay = delay
        self._max_backoff = max_backoff
        self._stopping = False
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """End the current sleep, if any."""
        self._wake.set()

    def stop(self) -> None:
        """Let `run()` return after the current `run_once`."""
        self._stopping = True
        self.wake()

    async def run(self) -> None:
        """Run until stopped."""
        failures = 0
        if self._delay:
            await self._sleep(self._delay.total_seconds())
        while not self._stopping:
            self._wake.clear()
            try:
                done = await self._run_once()
                failures = 0
            except Exception:
                failures += 1
                log.exception("%s failed", self.name, extra={"loop": self.name, "failures": failures})
                await self._sleep(self._backoff(failures))
                continue
            if not done and not self._stopping:
                await self._sleep(self._idle.total_seconds())

    def _backoff(self, failures: int) -> float:
        return random.uniform(0, min(self._max_backoff.total_seconds(), 0.1 * 2**failures))

    async def _sleep(self, seconds: float) -> None:
        if not self._stopping:
            try:
                await asyncio.wait_for(self._wake.wait(), seconds)
            except TimeoutError:
                return

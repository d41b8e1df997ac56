"""Notices from outside the event loop that something blocks it, and says what: a handler that never awaits."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from datetime import timedelta
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)


class Watchdog:
    """A context manager around a running loop. While the loop does not turn for `patience`, heartbeats of clients that live in
    it stop too, and the group will give the partitions away: so `patience` is a part of the session time-out.
    """

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience.total_seconds()
        self._turned = time.monotonic()
        self._ended = threading.Event()
        self.blocked = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._turn()
        threading.Thread(target=self._watch, name="consumer_idem watchdog", daemon=True).start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._ended.set()
        self._timer.cancel()

    def _turn(self) -> None:
        self._turned = time.monotonic()
        self._timer = self._loop.call_later(self._patience / 4, self._turn)

    def _watch(self) -> None:
        told = 0.0
        while not self._ended.wait(self._patience / 4):
            turned = self._turned
            if time.monotonic() - turned > self._patience and told != turned:
                told = turned
                self.blocked += 1
                log.critical("the event loop is blocked; run what does not await in a thread", extra={"stack": self._stack()})

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._watched)
        return "".join(traceback.format_stack(frame)) if frame else "unknown"

"""When the relay reads, and from where."""

import time
from collections.abc import Collection
from datetime import timedelta

from consumer_idem.outbox.backlog import Backlog, Page, Wanted
from consumer_idem.outbox.horizon import Floor
from consumer_idem.outbox.nap import Look, Nap
from consumer_idem.outbox.window import Limits, Window

_FIRST_PAUSE = 0.002
_WRITERS = 0.05
"""Seconds between two looks at who is adding records, while only the floor's rise depends on it."""
_SHARE_OF_FULL_LOOKS = 50
"""A full look that took long comes so much more seldom: they take a fiftieth of the time at most."""
_UNSEEN = -1


class Reader:
    """Fills the window. Reads at once after `look()`, then after growing pauses up to `poll`, or `rest` in sound sleep."""

    def __init__(self, backlog: Backlog, window: Window, nap: Nap, limits: Limits, pauses: tuple[timedelta, timedelta, timedelta]) -> None:
        self._backlog = backlog
        self._window = window
        self._nap = nap
        self._limits = limits
        self._poll, self._rest, self._full_look = (pause.total_seconds() for pause in pauses)
        self._floor = Floor()
        self._change = _UNSEEN
        self._looking = True
        self._pause = _FIRST_PAUSE
        self._read_at = self._last_read_at = self._full_look_at = self._writers_at = 0.0
        self._left_out: Collection[str] = ()

    def look(self) -> None:
        """Read at the next turn."""
        self._looking = True

    def start_over(self) -> None:
        """Read from the start of the table: what is known about it may be wrong, or rows were passed over."""
        self._floor.reset()
        self._looking = True

    def due_in(self, now: float) -> float:
        """Return the seconds until the next read: with enough in memory there is time, but other topics may have some."""
        if self._window.has_enough:
            return max(0.0, self._last_read_at + self._poll - now)
        return 0.0 if self._looking else max(0.0, self._read_at - now)

    async def watch(self) -> None:
        """Find out who is adding records, if that would let the floor rise or the relay sleep; no read may be under way."""
        now = time.monotonic()
        if self._nap.wants_writers or (self._floor.wants_writers and now >= self._writers_at):
            self._writers_at = now + _WRITERS
            await self._look_at_writers()

    async def _look_at_writers(self) -> None:
        writers = await self._backlog.writers()
        self._floor.observe(writers)
        self._nap.observe(writers)

    async def read(self, shards: Collection[int]) -> Page:
        """Read what comes next for these shards, leaving out what is in memory, held, or does not fit."""
        self._looking = False
        if self._floor.unknown:
            await self._look_at_writers()
        self._left_out = self._window.full_topics
        started = self._last_read_at = time.monotonic()
        whole = started >= self._full_look_at
        page = await self._backlog.read(
            Wanted(
                above=0 if whole else self._floor.value,
                change=self._change,
                shards=list(shards),
                without=[*self._window.held_topics, *self._left_out],
                known=self._window.known(),
                records=self._limits.batch,
                bytes=self._limits.bytes,
            )
        )
        if whole:
            took = time.monotonic() - started
            self._full_look_at = started + max(self._full_look, took * _SHARE_OF_FULL_LOOKS)
        return page

    def admit(self, page: Page) -> Look:
        """Put the page into the window; return what was found."""
        self._window.admit(page.entries)
        if page.change != self._change:
            self._floor.reset()
            self._change = page.change
        elif not self._left_out:
            self._floor.read(page.last)
        whole = not self._left_out and len(page.entries) < self._limits.batch and page.bytes * 2 < self._limits.bytes
        return Look(len(page.entries), self._last_read_at, time.monotonic(), whole)

    def pause(self, look: Look) -> None:
        """Set the time of the next read: of what comes after a look that missed nothing, a relay in sound sleep will hear."""
        if look.records:
            self._pause = 0.0
        else:
            self._pause = min(max(self._pause * 2, _FIRST_PAUSE), self._poll)
        self._read_at = time.monotonic() + (self._rest if self._nap.sound and look.complete else self._pause)

"""How far reading has come for good. Pure: told what was read and who was writing, it says where the next read may start.

A transaction takes its ids before it commits, so a row can appear below one that was read already. It would be missed by a
read that starts where the last one ended, and worse: a later record of its key, added after its commit, would overtake it.
A transaction that has taken an id holds a lock on the table until it has ended. So all that was taken at one moment is
decided when all that held the lock at that moment have let go of it, and is passed for good by the next read.
"""

from collections.abc import Collection
from typing import NamedTuple

_STEP = 500
"""Ids by which the floor must be behind for its rise to be worth a look at the writers."""


class Writers(NamedTuple):
    """Which transactions were adding records at one moment, the last id taken by then, and on which run of the server."""

    server: object
    last: int
    transactions: frozenset[str]


class Horizon:
    """Tells when every transaction that was adding records at one moment has ended."""

    __slots__ = ("_open", "_server", "last")

    def __init__(self) -> None:
        self.last = 0
        self._server: object = None
        self._open: Collection[str] | None = None

    def observe(self, writers: Writers) -> None:
        """The first call sets the moment."""
        if self._open is None or self._server != writers.server:
            self._server, self.last, self._open = writers.server, writers.last, writers.transactions
        else:
            self._open = writers.transactions.intersection(self._open)

    @property
    def passed(self) -> bool:
        """Whether a read that starts from now on sees all that was added up to that moment, up to the id `last`."""
        return self._open is not None and not self._open


class Floor:
    """The id up to which nothing can appear any more."""

    __slots__ = ("_highest", "_horizon", "_server", "value")

    def __init__(self) -> None:
        self.value = 0
        self._highest = _STEP
        self._horizon = Horizon()
        self._server: object = None

    @property
    def unknown(self) -> bool:
        """Whether nothing is known yet: a look at the writers before the first read lets the floor rise with it."""
        return self.value == 0 and not self._horizon.passed

    @property
    def wants_writers(self) -> bool:
        """Whether knowing the writers would let the floor rise."""
        return self._highest >= self.value + _STEP and not self._horizon.passed

    def observe(self, writers: Writers) -> None:
        """Take note of who is adding records now; no read may be under way."""
        if self._server != writers.server or writers.last < self.value:
            # A server that restarted, another one, or a sequence that was set back: ids below the floor may be given again.
            self.reset()
            self._server = writers.server
        self._horizon.observe(writers)

    def read(self, last: int | None) -> None:
        """Take note of a read from here that ended at the id `last` (None: it found nothing) and left nothing out."""
        if last is not None:
            self._highest = max(self._highest, last)
        if self._horizon.passed:
            self.value = max(self.value, self._horizon.last if last is None else min(self._horizon.last, last))
            self._horizon = Horizon()

    def reset(self) -> None:
        """Start from the beginning: what is known about the table may be wrong."""
        self.value, self._highest = 0, _STEP
        self._horizon = Horizon()

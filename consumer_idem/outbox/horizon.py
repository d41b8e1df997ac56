"""How far reading has come for good. Pure: told what was read and who was writing, it says where the next read may start.

A transaction takes its ids before it commits, so a row can appear below one that was read already. It would be missed by a
read that starts where the last one ended, and worse: a later record of its key, added after its commit, would overtake it.
A transaction that has taken an id holds a lock on the table until it has ended. So an id is passed for good when all that
held the lock at one moment after it was read have let go of it, and one more read has been done since.
"""

from collections.abc import Collection
from typing import NamedTuple


class Writers(NamedTuple):
    """Which transactions were adding records at one moment, and on which run of the server."""

    server: object
    transactions: frozenset[str]


class Horizon:
    """Tells when every transaction that was adding records at one moment has ended."""

    __slots__ = ("_open", "_server")

    def __init__(self) -> None:
        self._server: object = None
        self._open: Collection[str] | None = None

    def observe(self, writers: Writers) -> None:
        """The first call sets the moment."""
        if self._open is None or self._server != writers.server:
            self._server, self._open = writers.server, writers.transactions
        else:
            self._open = writers.transactions.intersection(self._open)

    @property
    def passed(self) -> bool:
        """Whether a read that starts from now on sees all that was added before that moment."""
        return self._open is not None and not self._open


class Floor:
    """The id up to which nothing can appear any more."""

    __slots__ = ("_candidate", "_horizon", "value")

    def __init__(self) -> None:
        self.value = 0
        self._candidate = 0
        self._horizon = Horizon()

    @property
    def wants_writers(self) -> bool:
        """Whether knowing the writers would let the floor rise."""
        return self._candidate > self.value and not self._horizon.passed

    def observe(self, writers: Writers) -> None:
        """Take note of who is adding records now; no read may be under way."""
        if self._candidate > self.value:
            self._horizon.observe(writers)

    def read(self, last: int | None) -> None:
        """Take note of a read from here that ended at the id `last` (None: it found nothing) and left nothing out."""
        if self._candidate > self.value and self._horizon.passed:
            self.value = self._candidate if last is None else min(self._candidate, last)
        if last is not None and self._candidate <= self.value:
            self._candidate, self._horizon = last, Horizon()

    def reset(self) -> None:
        """Start from the beginning: what is known about the table may be wrong."""
        self.value = self._candidate = 0
        self._horizon = Horizon()

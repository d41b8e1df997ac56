"""Deferred writes: collected from many messages, sent with one executemany per distinct statement. Pure."""

from collections.abc import Sequence
from typing import Any

Args = tuple[Any, ...]
Write = tuple[str, Args, str | None]
"""Statement, arguments and the key whose writes must keep their order, None for writes that commute."""


class _Group:
    """Writes of one statement that go out together."""

    __slots__ = ("keyed", "sql", "unkeyed")

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.keyed: list[tuple[str, Args]] = []
        self.unkeyed: list[Args] = []

    def rows(self) -> Sequence[Args]:
        # By key, so that two partitions that write the same hot rows lock them in the same order; stable, so that
        # one key's writes keep theirs.
        self.keyed.sort(key=lambda write: write[0])
        return [args for _, args in self.keyed] + self.unkeyed


class Deferred:
    """The writes of a transaction that are not sent yet.

    A write joins the first group of its statement that does not stand before the last write of its key: so writes of
    one key keep their order over different statements, and all others need one group per statement.
    """

    __slots__ = ("_first", "_groups", "_last", "_places")

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._first: dict[str, int] = {}
        self._places: dict[str, list[int]] = {}
        self._last: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, writes: Sequence[Write]) -> None:
        """Take over the writes of one handler call, in their order."""
        for sql, args, key in writes:
            if key is None:
                place = self._first.get(sql)
                if place is None:
                    place = self._open(sql)
                self._groups[place].unkeyed.append(args)
            else:
                place = self._place(sql, self._last.get(key, 0))
                self._last[key] = place
                self._groups[place].keyed.append((key, args))

    def _place(self, sql: str, earliest: int) -> int:
        for place in self._places.get(sql, ()):
            if place >= earliest:
                return place
        return self._open(sql)

    def _open(self, sql: str) -> int:
        place = len(self._groups)
        self._groups.append(_Group(sql))
        self._first.setdefault(sql, place)
        self._places.setdefault(sql, []).append(place)
        return place

    def take(self) -> list[tuple[str, Sequence[Args]]]:
        """Return the statements with their rows, in the order in which they must be sent, and forget them."""
        groups = [(group.sql, group.rows()) for group in self._groups]
        self.__init__()  # type: ignore[misc]  # back to empty: the same state as a new one
        return groups

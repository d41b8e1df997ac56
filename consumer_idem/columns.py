"""Columns of rows as the .sql files take them: an array that is too short ends in NULLs there. Pure."""

from collections.abc import Sequence
from typing import Any


def once(column: Sequence[Any]) -> Sequence[Any]:
    """Return the first value alone if all are the same; there must be one."""
    return column[:1] if len(set(column)) == 1 else column


def unless_null(column: Sequence[Any]) -> Sequence[Any]:
    """Return nothing if all values are null; there must be one value."""
    return [] if column[0] is None and all(value is None for value in column) else column

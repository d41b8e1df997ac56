"""Bugs on purpose: a test that guards against a bug is only worth something if it fails when the bug is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from consumer_idem import sql


@contextmanager
def planted(part: str, name: str, old: str, new: str) -> Iterator[None]:
    """Replace `old` by `new` in one .sql file while the block runs."""
    read = sql._text.__wrapped__

    def text(package: str, file: str, schema: str) -> str:
        found = read(package, file, schema)
        if (package, file) == (f"{part}.queries", name):
            assert old in found, f"{name}.sql has no {old!r}"
            return found.replace(old, new)
        return found

    with mock.patch.object(sql, "_text", text):
        yield

"""Outbox records in words, for people and as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from consumer_idem.cli.told import readable, time
from consumer_idem.ports import Row

if TYPE_CHECKING:
    from consumer_idem.outbox.operators import StoredRecord

_PREVIEW = 500
_WITH_VALUE = ("value", "headers", "message_time")


def record_line(record: "StoredRecord") -> str:
    """Return a record in one line."""
    key = "without a key" if record.key is None else f"key {readable(record.key)}"
    size = "a tombstone" if record.size is None else f"{record.size} bytes"
    error = f": {readable(record.error)}" if record.error else ""
    return f"#{record.id} {record.status}, {record.topic}, {key}, {size}, since {time(record.created_at)}{error}"


class Summary:
    """How many records of which status and error go to which topic."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str, str | None]]()

    def add(self, records: "Sequence[StoredRecord]") -> None:
        """Count these too."""
        self._counts.update((each.status, each.topic, each.error) for each in records)

    def lines(self) -> Iterator[str]:
        """Yield a line for each kind."""
        for (status, topic, error), count in self._counts.items():
            yield f"{count} × {status}, {topic}{f': {readable(error)}' if error else ''}"


def record_object(record: "StoredRecord", audit: Sequence[Row] | None = None) -> dict[str, Any]:
    """Return a record for JSON; with `audit`, all that is known."""
    found = {name: readable(value) for name, value in asdict(record).items() if audit is not None or name not in _WITH_VALUE}
    if audit is not None:
        found["headers"] = [[readable(name), readable(value)] for name, value in record.headers]
        found["audit"] = [{name: readable(value) for name, value in row.items()} for row in audit]
    return found


def record_shown(record: "StoredRecord", audit: Sequence[Row]) -> Iterator[str]:
    """Yield all that is known, a line for each fact."""
    for name, value in asdict(record).items():
        if value is not None and name != "headers":
            yield _fact(name, _preview(value) if name == "value" else value)
    for name, header in record.headers:
        yield _fact("header", f"{name}: {'null' if header is None else header.decode(errors='backslashreplace')}")
    yield from act_lines(audit)


def act_lines(audit: Sequence[Row]) -> Iterator[str]:
    """Yield what operators did."""
    for row in audit:
        why = f" ({readable(row['reason'])})" if row["reason"] else ""
        error = f": {readable(row['error'])}" if row["error"] else ""
        yield f"{time(row['at'])} {row['action']} by {readable(row['operator'])}{why}{error}"


def _fact(name: str, value: Any) -> str:
    return f"{name:<12} {time(value) if isinstance(value, datetime) else readable(value)}"


def _preview(value: bytes) -> str:
    text = str(readable(value))
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}… ({len(value)} bytes; --value writes them all)"

"""Rows in words, for people and as JSON."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from consumer_idem.history import History
from consumer_idem.ports import Row

OUTCOMES = {"a": "applied", "r": "rejected", "q": "quarantined", "d": "discarded"}
_STATUS = {
    "pending": "waits",
    "parked": "is parked",
    "blocked": "waits behind a parked one of its key",
    "topic-held": "waits for its topic",
    "held": "is held",
}


def as_lines(history: History) -> Iterator[str]:
    """Yield what is known of a message, a heading first."""
    settled = history.settled
    known = settled or history.quarantined[0]
    yield f"{history.handler}: message {known['message_id']}"
    if settled is None:
        yield _line("outcome", "none: its key was not claimed")
    else:
        yield _line("outcome", f"{OUTCOMES[settled['status']]}, claimed at {time(settled['claimed_at'])}")
        yield _line("position", position(settled))
        if settled["code"] is not None:
            yield _line("answer", " ".join(filter(None, (settled["code"], settled["detail"]))))
        yield from _several("duplicates", [f"{position(row)} at {time(row['seen_at'])}" for row in history.duplicates], "none seen")
    yield from _several("quarantine", [entry_line(row) for row in history.quarantined], "nothing")
    yield from _several("outbox", [_record(row) for row in history.unpublished], "nothing waits")


def as_guess(entries: Sequence[Row], message_id: str) -> Iterator[str]:
    """Yield entries that were found by their text, and say what that is worth."""
    if entries:
        yield f"Perhaps message {readable(message_id)}: a guess, since these entries have no id; their text holds this one."
    yield from (_line("" if place else "quarantine", entry_line(row)) for place, row in enumerate(entries))


def entry_line(entry: Row) -> str:
    """Return a quarantine entry in one line."""
    differing = f" ({', '.join(entry['fields'])} differs)" if entry["fields"] else ""
    where = f"{position(entry)} at {time(entry['quarantined_at'])}"
    again = f" Released by itself at {time(entry['release_at'])}." if entry["release_at"] else ""
    return f"#{entry['id']} {entry['state']}: {entry['reason']}{differing}, {where}. {readable(entry['error'])}{again}"


def as_objects(histories: Sequence[History], guessed: Sequence[Row]) -> str:
    """Return the same as a JSON list; what was found by its text is an object without a handler, and says so."""
    objects = [_object(history) for history in histories]
    if guessed:
        guess = {"handler": None, "outcome": None, "by_text": True, "duplicates": [], "quarantined": [dict(row) for row in guessed]}
        objects.append(guess | {"unpublished": []})
    return as_json(objects)


def as_json(value: Any) -> str:
    """Return `value` as indented JSON; times in ISO 8601, what is not text as its text."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=_json)


def _object(history: History) -> dict[str, Any]:
    settled = history.settled
    found: dict[str, Any] = {"handler": history.handler, "outcome": None, "by_text": False}
    if settled is not None:
        names = ("message_id", "tenant", "source", "scope", "topic", "partition", "offset", "claimed_at", "message_time")
        answer = None if settled["code"] is None else {"code": settled["code"], "detail": json.loads(settled["detail"] or "null")}
        found |= {"outcome": OUTCOMES[settled["status"]], **{name: settled[name] for name in names}, "answer": answer}
    rows = {"duplicates": history.duplicates, "quarantined": history.quarantined, "unpublished": history.unpublished}
    return found | {name: [dict(row) for row in part] for name, part in rows.items()}


def _json(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


def _line(name: str, text: str) -> str:
    return f"  {name:<11} {text}".rstrip()


def _several(name: str, lines: Sequence[str], nothing: str) -> Iterator[str]:
    for place, line in enumerate(lines or [nothing]):
        yield _line("" if place else name, line)


def position(row: Row) -> str:
    """Return where a message lay."""
    return f"{row['topic']}/{row['partition']}@{row['offset']}"


def time(moment: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _record(row: Row) -> str:
    error = f": {row['error']}" if row["error"] else ""
    return f"record {row['message_id']} for {row['topic']} {_STATUS[row['status']]} since {time(row['created_at'])}{error}"


def readable(value: Any) -> Any:
    """Bytes are shown as text where they are, with escapes elsewhere: a terminal must not be driven by a message."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in value) if isinstance(value, str) else value

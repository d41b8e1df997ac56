"""Quarantine entries in words, for people and as JSON."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from consumer_idem.cli.told import OUTCOMES, entry_line, position, readable, time
from consumer_idem.ports import Row

if TYPE_CHECKING:
    from consumer_idem.consumer.release import Answer

_PREVIEW = 500
_IN_ALL = ("all_groups", "all_entries")
_NOT_SHOWN = ("key_hash", "scope_id", "topic_id")


def in_one_line(entry: Row) -> str:
    """Return an entry with its message id."""
    return f"{entry_line(entry)} Message {entry['message_id'] or 'without a known id'}."


def group_lines(group: Row) -> str:
    """Return a group in two lines: how many of what, then when and where."""
    several = group["entries"] > 1
    what = f"{group['reason']} in {group['handler']}" if group["handler"] else group["reason"]
    state = "" if group["state"] == "open" else f"{group['state']}: "
    when = f"{time(group['first_at'])} to {time(group['last_at'])}, from" if several else f"{time(group['first_at'])},"
    again = f", released by itself from {time(group['release_at'])}" if group["release_at"] else ""
    line = f"{group['entries']} × {state}{what}: {readable(group['error'])}"
    return f"{line}\n    {when} #{group['first_id']}, topic {', '.join(group['topics'])}{again}"


def group_object(group: Row) -> dict[str, Any]:
    """Return a group for JSON."""
    return {name: value for name, value in group.items() if name not in _IN_ALL}


def more_lines(shown: int, total: int, what: str) -> Iterator[str]:
    """Yield what is left out, and how to see it."""
    if total > shown:
        yield f"… and {total - shown} more {what}. `consumer-idem quarantine list` with --limit {total} lists all; its filters choose."


def as_object(evidence: dict[str, Any]) -> dict[str, Any]:
    """Return all that is known, for JSON."""
    held = evidence["held_by"]
    return {
        **{name: readable(value) for name, value in evidence["entry"].items() if name not in _NOT_SHOWN},
        "held_by": None if held is None else {**held, "status": OUTCOMES[held["status"]]},
        "duplicates": [dict(row) for row in evidence["duplicates"]],
        "audit": [{name: readable(value) for name, value in row.items()} for row in evidence["audit"]],
    }


def shown(evidence: dict[str, Any]) -> Iterator[str]:
    """Yield all that is known, a line for each fact."""
    entry, held = evidence["entry"], evidence["held_by"]
    for name, value in entry.items():
        if value is not None and name not in _NOT_SHOWN:
            yield f"{name:<15} {_preview(value, '--value') if name == 'value' else readable(value)}"
    if held is not None:
        kept = f", kept {held['kept']}" if held["kept"] else ""
        yield f"{'key held by':<15} {position(held)}, {OUTCOMES[held['status']]}, claimed at {time(held['claimed_at'])}{readable(kept)}"
    for row in evidence["duplicates"]:
        yield f"{'duplicate':<15} {position(row)} at {time(row['seen_at'])}"
    for row in evidence["audit"]:
        yield f"{time(row['at']):<15} {_act(row)}"
        if row["edited"] is not None:
            yield f"{'with payload':<15} {_preview(row['edited'], '--json')}"


def _preview(value: bytes, how: str) -> str:
    text = str(readable(value))
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}… ({len(value)} bytes; {how} writes them all)"


def _act(row: Row) -> str:
    parts = [f"{row['action']} by {readable(row['operator'])}"]
    parts += [f"as {row['new_id']}"] if row["new_id"] else []
    parts += ["with another payload"] if row["edited"] is not None else []
    came = ": ".join(filter(None, (row["outcome"], readable(row["error"]))))
    parts += [f"→ {came}"] if came else []
    parts += [f"({readable(row['note'])})"] if row["note"] else []
    return " ".join(parts)


def answered(answer: "Answer") -> str:
    """Return what came of a release, in one line."""
    from consumer_idem.consumer.release import AlreadySettled, NotNow, Released
    from consumer_idem.consumer.reread import Refused

    match answer:
        case Released(id, outcome, new_id):
            return f"#{id} {_outcome(outcome)}{f' as {new_id}' if new_id and settles(answer) else ''}"
        case AlreadySettled(id, state, at):
            return f"#{id} duplicate: {state}{f' at {time(at)}' if at else ''}, nothing was run"
        case Refused(id, why):
            return f"#{id} refused: {readable(why)}"
        case NotNow(id, error):
            return f"#{id} not now: {readable(error)} Release it again, which is safe."


def settles(answer: "Answer") -> bool:
    """Tell whether the entry is not open any more."""
    from consumer_idem.consumer.release import AlreadySettled, Released
    from consumer_idem.outcome import Quarantined, Retry

    if isinstance(answer, Released):
        return not isinstance(answer.outcome, Quarantined | Retry)
    return isinstance(answer, AlreadySettled)


def _outcome(outcome: Any) -> str:
    from consumer_idem.outcome import Quarantined, Rejected, Retry, Skipped

    match outcome:
        case Rejected(code=code):
            return f"rejected: {code}"
        case Skipped():
            return "skipped: its key was settled meanwhile, the entry is closed"
        case Quarantined(reason, error):
            return f"stays in quarantine: {reason}: {readable(error)}"
        case Retry(after):
            return f"stays in quarantine: the handler asked for a retry after {after}"
        case _:
            return "applied"

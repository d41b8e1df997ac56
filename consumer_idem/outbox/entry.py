"""A row of the outbox as the relay holds it in memory."""

from typing import NamedTuple

from consumer_idem.message import OutboxRecord
from consumer_idem.outbox.headers import cloud_event
from consumer_idem.ports import Row
from consumer_idem.stored import loaded_headers

Chain = bytes | int
"""What must stay in order within a topic: all records of a key, or a record without a key by itself (its row's id)."""


class Entry(NamedTuple):
    """One record that was read and is not yet forgotten."""

    id: int
    shard: int
    record: OutboxRecord
    size: int
    """The bytes of its value."""

    @property
    def chain(self) -> Chain:
        """The records among which this one must not be overtaken."""
        return self.id if self.record.key is None else self.record.key


class Unfit(NamedTuple):
    """An entry that can never be sent, and why."""

    entry: Entry
    error: str


def entry_of(row: Row) -> Entry | Unfit:
    """Return the row as it is to be sent; Unfit if its headers cannot be decoded."""
    headers = cloud_event(row["message_id"], row["source"], row["type"], row["time"])
    problem = None
    if row["headers"] is not None:
        try:
            headers.extend(loaded_headers(row["headers"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"undecodable headers: {error}"
    record = OutboxRecord(id=row["message_id"], topic=row["topic"], key=row["key"], value=row["value"], headers=headers)
    entry = Entry(row["id"], row["shard"], record, len(record.value or b""))
    return entry if problem is None else Unfit(entry, problem)

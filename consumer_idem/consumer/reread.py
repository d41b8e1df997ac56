"""What a quarantined message is when it is released: read by today's source, maybe corrected, maybe under a new id. Pure."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from consumer_idem.consumer.handler import Route, Routes
from consumer_idem.inbox.key import Keys, readable
from consumer_idem.inbox.source import Reading, Unreadable
from consumer_idem.inbox.spelled import IdNotUnderstood, parts_of
from consumer_idem.message import Message
from consumer_idem.outcome import Reason
from consumer_idem.ports import Row
from consumer_idem.stored import loaded_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be done with an entry, by whom and why.

    `edited`: the corrected payload for the handler; the entry keeps the original. `new_id`: handle a conflict as a message
    of its own, under an id derived from its own. Both need a `note`.
    """

    operator: str
    note: str = ""
    edited: bytes | None = None
    new_id: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """The message to handle, and who handles it. `key_hash` is None if it still cannot be identified."""

    message: Message
    routes: Routes
    key_hash: UUID | None = None
    new_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was run, and the entry is as it was; `why` says what to do."""

    id: int
    why: str


def reread(entry: Row, order: Order, routes: Routes, group: str) -> Reread | Refused:
    """Return what the entry's message is now; Refused if it must not be released like this."""
    original = message_of(entry)
    message = original if order.edited is None else replace(original, value=order.edited)
    route = routes.find(message)
    why = _refusal(entry, order, route, group)
    if why is not None:
        return Refused(entry["id"], why)
    if route is None:
        return Reread(message=message, routes=routes)
    read = _Again(entry, order, route, original)
    reading = read(message)
    if isinstance(reading, Unreadable):
        return Reread(message=message, routes=routes)
    if not order.new_id and entry["key_hash"] not in (None, reading.key_hash):
        return Refused(entry["id"], f"It is message {entry['message_id']}, and this would be {reading.message_id}. Keep the message id.")
    new_id = reading.message_id if order.new_id else None
    return Reread(message=message, routes=Routes([replace(route, read=read)]), key_hash=reading.key_hash, new_id=new_id)


def message_of(entry: Row) -> Message:
    """Return the message that the entry was made of."""
    return Message(
        topic=entry["topic"],
        partition=entry["partition"],
        offset=entry["offset"],
        key=entry["key"],
        value=entry["value"],
        headers=loaded_headers(entry["headers"]),
        time=entry["message_time"],
    )


def _refusal(entry: Row, order: Order, route: Route | None, group: str) -> str | None:
    conflict = entry["reason"] == Reason.CONFLICT
    if entry["consumer_group"] != group:
        return f"It belongs to group {entry['consumer_group']}, this App to {group}. Name the App of that group."
    if conflict and not order.new_id:
        return (
            "Its key is settled with another content, so it is never applied under that key. Decide: `release … --as new-id --note TEXT`, "
            "new-id as it stands, handles it as a message of its own under an id made of this one; `discard … --reason TEXT` drops it."
        )
    if order.new_id and not conflict:
        return f"Only a conflict can be given a new id, and its reason is {entry['reason']}. Release it as it is."
    if (order.new_id or order.edited is not None) and not order.note.strip():
        return "What changes a message needs a note for the audit trail: --note …"
    if entry["scope_id"] is not None and (route is None or route.scope != entry["scope_id"]):
        return f"Handler {entry['scope']} is not declared in this App for this message. Name the App that has it."
    return None


class _Again:
    """Reads the message as the route does, then makes it what the order says."""

    def __init__(self, entry: Row, order: Order, route: Route, original: Message) -> None:
        self._entry = entry
        self._order = order
        self._route = route
        self._original = original

    def __call__(self, message: Message) -> Reading[Any] | Unreadable:
        reading = self._route.read(message)
        if isinstance(reading, Unreadable):
            return reading
        if self._order.edited is not None:
            reading = self._with_original_fingerprint(reading)
        return self._renamed(reading) if self._order.new_id else reading

    def _with_original_fingerprint(self, reading: Reading[Any]) -> Reading[Any]:
        """What upstream sends again is the original: it must be a duplicate of this release, not a conflict with it."""
        original = self._route.read(self._original)
        if isinstance(original, Unreadable):
            return reading
        return original._replace(payload=reading.payload, message_id=reading.message_id, key_hash=reading.key_hash)

    def _renamed(self, reading: Reading[Any]) -> Reading[Any]:
        entry, handler = self._entry, self._route.handler
        parts = _parts(entry["message_id"])
        parts = (*parts[:-1], f"{parts[-1]}#released-{entry['id']}")
        tenant = () if entry["tenant"] is None else _parts(entry["tenant"])
        key_hash = Keys(handler.scope, handler.source.name).hash(parts, tenant, reading.occurred_at)
        return reading._replace(message_id=readable(parts), tenant=entry["tenant"], key_hash=key_hash)


def _parts(text: str) -> tuple[str, ...]:
    try:
        return parts_of(text)
    except IdNotUnderstood:
        return (text,)

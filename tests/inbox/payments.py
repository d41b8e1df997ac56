"""A source of payments and its messages, for the tests of this folder."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from consumer_idem.inbox.source import Fingerprint, Reading, Source, Unreadable, field
from consumer_idem.message import Header, Message


class Payment(BaseModel):
    payment_id: str
    account: str
    amount: Decimal
    currency: str = "EUR"
    note: str | None = None


def message(value: Any, headers: Sequence[Header] = (), **options: Any) -> Message:
    """A message with `value` as it is if it is bytes or null, and as JSON if it is anything else."""
    raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return Message(topic="payments", partition=0, offset=7, value=raw, headers=headers, **options)


def payment(**changes: Any) -> dict[str, Any]:
    return {"payment_id": "p-1", "account": "alice", "amount": "12.50"} | changes


def source(model: Any = Payment, name: str = "checkout", **options: Any) -> Source[Any]:
    options.setdefault("message_id", field("payment_id"))
    options.setdefault("fingerprint", Fingerprint("account", "amount", "currency"))
    return Source(name, model=model, **options)


def read(declared: Source[Any], incoming: Message, scope: str = "apply-payment") -> Reading[Any]:
    reading = declared.read(incoming, scope)
    assert isinstance(reading, Reading), reading
    return reading


def refused(declared: Source[Any], incoming: Message, scope: str = "apply-payment") -> Unreadable:
    reading = declared.read(incoming, scope)
    assert isinstance(reading, Unreadable), reading
    return reading

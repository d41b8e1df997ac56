"""What a handler call leaves for one message: records and ids that a repeated run makes again."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from consumer_idem import telemetry
from consumer_idem.errors import TransactionEnded
from consumer_idem.message import Header, Message
from consumer_idem.outbox.record import checked_record, record_id
from consumer_idem.transaction.unit import Unit
from consumer_idem.uuids import uuid5

if TYPE_CHECKING:
    from pydantic import BaseModel

Value: TypeAlias = "bytes | str | BaseModel | Mapping[str, Any] | Sequence[Any] | None"


class Publishing:
    """Publishes and makes ids for one message, within the transaction of `unit`, until it is ended."""

    __slots__ = ("_ended", "_key_hash", "_message", "_ordinals", "_source", "_unit", "_uuids")

    def __init__(self, unit: Unit, message: Message | None, key_hash: UUID | None, source: str) -> None:
        self._unit = unit
        self._message = message
        self._key_hash = key_hash
        self._source = source
        self._ordinals: dict[str, int] | None = None
        self._uuids = 0
        self._ended = False

    def uuid(self) -> UUID:
        """Return a UUID made from the idempotency key: a run that repeats this one gets the same, in the same order."""
        if self._key_hash is None:
            raise AttributeError("A batch handler's tx has no idempotency key of its own: use `item.uuid()`.")
        self._uuids += 1
        return uuid5(self._key_hash, b"uuid:%d" % self._uuids)

    def publish(
        self,
        topic: str,
        *,
        value: Value,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | Sequence[Header] | None = None,
        type: str | None = None,
        id: UUID | None = None,
    ) -> UUID:
        """Write a record into the outbox with this transaction; return its id, sent as `ce_id`.

        `value` may be bytes, text, None (a tombstone) or anything that pydantic turns into JSON. Records of one `key` reach
        the topic in the order of their commits. The id is made from the idempotency key, the topic and the count of
        records for that topic in this call, so that a repeated run publishes the same ids. Raises RecordTooLarge where the
        topic is known not to take it: where it is not, the relay finds out, and parks the record.
        """
        self._refuse_if_ended()
        message_time = None if self._message is None else self._message.time
        record = checked_record(
            self._record_id(topic) if id is None else id,
            topic, _key_bytes(key), _encoded(value), self._headers(headers), type, self._source, message_time,
        )  # fmt: skip
        self._unit.limits.check(record)
        self._unit.records.append(record)
        return record.message_id

    def _record_id(self, topic: str) -> UUID:
        if self._key_hash is None:
            raise TypeError("A batch handler publishes with `item.publish(…)`, or gives an `id=`, so that a repeated run has the same id.")
        if self._ordinals is None:
            self._ordinals = {}
        ordinal = self._ordinals[topic] = self._ordinals.get(topic, -1) + 1
        return record_id(self._key_hash, 0, topic, ordinal)

    def _headers(self, given: Mapping[str, str | bytes | None] | Sequence[Header] | None) -> Sequence[Header]:
        if not given and not self._unit.traced and (self._message is None or not self._message.headers):
            return ()
        own, traced = _header_pairs(given), telemetry.trace_headers(self._message)
        if not traced or not own:
            return own or traced
        names = {name for name, _ in own}
        return (*(header for header in traced if header[0] not in names), *own)

    def end(self) -> None:
        """Refuse everything from now on."""
        self._ended = True

    def _refuse_if_ended(self) -> None:
        if self._ended:
            raise TransactionEnded


def _key_bytes(key: str | bytes | None) -> bytes | None:
    if isinstance(key, str):
        return key.encode()
    if key is None or isinstance(key, bytes):
        return key
    raise TypeError(f"The key of a record is text, bytes or None, not {type(key).__name__}: publish(…, key=str(…)).")


def _encoded(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _to_json()(value)


@cache
def _to_json() -> Callable[[Any], bytes]:
    # Not with the module: whoever only adds records to an Outbox needs no pydantic.
    from pydantic_core import to_json

    return to_json


def _header_pairs(headers: Mapping[str, str | bytes | None] | Sequence[Header] | None) -> Sequence[Header]:
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)

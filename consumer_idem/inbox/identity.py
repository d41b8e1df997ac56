"""How a source's messages are identified: message id, tenant, and the time inside the id. Pure."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from enum import Enum
from operator import attrgetter
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

import pydantic

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.functions import called, refuse_coroutine
from consumer_idem.inbox.key import id_text
from consumer_idem.inbox.locate import FieldPart, HeaderPart, Locator, Part, Place, header, header_text
from consumer_idem.inbox.reading import Unidentifiable
from consumer_idem.inbox.shape import Target, alternatives, resolve, type_name
from consumer_idem.inbox.walk import Gap, walk
from consumer_idem.message import Message

Parts = tuple[str, ...]
FindParts = Callable[[Any, Message], Parts]
FindText = Callable[[Any, Message], str]

_CLOUD_EVENT = header("ce_id")
_TIMES = (date, pydantic.AwareDatetime, pydantic.PastDatetime, pydantic.FutureDatetime, pydantic.PastDate, pydantic.FutureDate)
_IDS = (str, int, UUID, bytes, Enum, pydantic.EmailStr, *_TIMES)


def find_parts(place: Place, model: Any, option: str) -> FindParts:
    """Return what finds an id made of one or more parts; it raises Unidentifiable, naming the part."""
    if not isinstance(place, Locator):
        return _by_function(place, option)
    if option == "message_id" and place == _CLOUD_EVENT:
        return _cloud_event
    found = tuple(_find(part, model, option) for part in place.parts)
    if len(found) == 1:
        return _single(found[0])
    return lambda payload, message: tuple([find(payload, message) for find in found])


def _single(find: FindText) -> FindParts:
    return lambda payload, message: (find(payload, message),)


def _cloud_event(_: Any, message: Message) -> Parts:
    event_id = _header(message, "ce_id")
    return (_header(message, "ce_source"), event_id) if message.header_values("ce_source") else (event_id,)


def _header(message: Message, name: str) -> str:
    try:
        return header_text(message, name)
    except Unidentifiable as problem:
        raise Unidentifiable(f"header {name} {problem}") from None


def _find(part: Part, model: Any, option: str) -> FindText:
    if isinstance(part, HeaderPart):
        name = part.name
        return lambda _, message: _header(message, name)
    target = resolve(model, part.path)
    if any(declared.made_up for step in target.steps for declared in step):
        raise DeclarationError(
            f"{option} field {part.path!r} has a default, which would stand for an id that is missing. Remove the default."
        )
    for kind in alternatives(target.annotation):
        if not _identifies(kind):
            allowed = "a str, int, UUID, bytes, date, datetime or enum"
            raise DeclarationError(f"{option} field {part.path!r} is a {type_name(kind)}. An id is {allowed}.")
    return _in_field(part.path, target)


def _identifies(kind: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is Literal:
        return all(_identifies(type(value)) for value in get_args(kind))
    return isinstance(kind, type) and issubclass(kind, _IDS) and not issubclass(kind, bool)


def _in_field(path: str, target: Target) -> FindText:
    segments = tuple(path.split("."))
    read: Callable[[Any], Any] = attrgetter(path) if target.direct else lambda payload: walk(payload, segments)

    def find(payload: Any, _: Message) -> str:
        value = read(payload)
        try:
            if type(value) is Gap:
                raise Unidentifiable("is null" if value.null else "is missing")
            return id_text(value)
        except Unidentifiable as problem:
            raise Unidentifiable(f"field {path} {problem}") from None

    return find


def _by_function(function: Callable[..., Any], option: str) -> FindParts:
    refuse_coroutine(function, option)

    def find(payload: Any, message: Message) -> Parts:
        found = called(function, option, Unidentifiable, payload, message)
        parts = found if type(found) is tuple and found else (found,)
        try:
            return tuple(map(id_text, parts))
        except Unidentifiable as problem:
            raise Unidentifiable(f"what the {option} function returned {problem}") from None

    return find


FindTime = Callable[[Any, Parts], datetime]


def find_time(place: Place, message_id: object, model: Any) -> FindTime:
    """Return what finds the time inside an id; DeclarationError if it is not a part of the id.

    A time beside the id would not do: the same message with another time would get another key, and be applied twice.
    """
    if not isinstance(place, Locator):
        refuse_coroutine(place, "occurred_at")
        # The CloudEvents source in front is not what the user named as the id.
        last = 1 if message_id == _CLOUD_EVENT else 0
        return lambda _, ids: _moment(called(place, "occurred_at", Unidentifiable, *ids[-last:]))
    inside = message_id.parts if isinstance(message_id, Locator) else ()
    part = place.parts[0]
    if len(place.parts) != 1 or not isinstance(part, FieldPart) or part not in inside:
        raise DeclarationError("occurred_at must be one of the fields in message_id=fields(…), or a function of the id.")
    for kind in alternatives(resolve(model, part.path).annotation):
        if not (isinstance(kind, type) and issubclass(kind, _TIMES)):
            raise DeclarationError(f"occurred_at field {part.path!r} is a {type_name(kind)}. It must be a datetime with a zone, or a date.")
    segments = tuple(part.path.split("."))
    return lambda payload, _: _moment(walk(payload, segments))


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise Unidentifiable("occurred_at is a time without a zone")
        return value
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise Unidentifiable(f"occurred_at is a {type(value).__name__}, not a datetime")

"""Where something is declared to be in a message: in a header, or in a field of the payload. Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.key import id_text, printable, utf8
from consumer_idem.inbox.reading import Unidentifiable
from consumer_idem.message import Message


@dataclass(frozen=True, slots=True)
class HeaderPart:
    """A Kafka header, by its exact name."""

    name: str

    def __str__(self) -> str:
        return f"header({self.name})"


@dataclass(frozen=True, slots=True)
class FieldPart:
    """A field of the payload, by its dotted path of Python names."""

    path: str

    def __str__(self) -> str:
        return self.path


Part = HeaderPart | FieldPart


@dataclass(frozen=True, slots=True)
class Locator:
    """What `header`, `field` and `fields` return: the places that make up an id, a tenant or a time."""

    parts: tuple[Part, ...]


Place = Locator | Callable[..., Any]
"""Where a user says that something is: located, or found by a function of theirs."""


def header(name: str) -> Locator:
    """Locate the header `name`. As an id it must be there exactly once, in UTF-8 and not empty.

    As `message_id=`, `header("ce_id")` is the CloudEvents identity: the id counts within its `ce_source`, where that is sent.
    """
    return Locator((HeaderPart(_named(name, "header")),))


def field(path: str) -> Locator:
    """Locate a field of the payload by its Python name, not its alias; `customer.id` for a nested one."""
    return Locator((FieldPart(_named(path, "field")),))


def fields(*paths: str) -> Locator:
    """Locate several fields that make up the id together: `fields("order", "line")`."""
    if not paths:
        raise DeclarationError("fields() names no field.")
    repeated = [path for path, count in Counter(paths).items() if count > 1]
    if repeated:
        raise DeclarationError(f"fields() names {repeated[0]!r} twice.")
    return Locator(tuple(FieldPart(_named(path, "field")) for path in paths))


def _named(name: str, what: str) -> str:
    if not name or printable(name) != name or (what == "field" and "" in name.split(".")):
        raise DeclarationError(f"{what}({name!r}) is not the name of a {what}.")
    return name


def needs_payload(place: Place | None) -> bool:
    """Tell whether an id cannot be found in the headers alone."""
    return place is not None and not (isinstance(place, Locator) and all(isinstance(part, HeaderPart) for part in place.parts))


def header_text(message: Message, name: str) -> str:
    """Return the text of the one header `name`; raise Unidentifiable if it is missing, repeated, null, empty or not UTF-8."""
    values = [value for header_name, value in message.headers if header_name == name]
    if len(values) != 1:
        raise Unidentifiable("is missing" if not values else f"is there {len(values)} times")
    value = values[0]
    if value is None:
        raise Unidentifiable("is null")
    return id_text(utf8(value))

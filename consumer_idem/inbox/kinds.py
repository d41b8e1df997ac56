"""Which kind of canonical form a declared type gives, and which types are refused at declaration. Pure.

The kinds are part of a fingerprint's registered content: a type that changes so that stored fingerprints would not match
any more must not pass under the same version, while `str` may become an enum of strings, and `int` a Decimal.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import PurePath
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

import pydantic
import typing_extensions
from pydantic_core import MultiHostUrl, Url

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.shape import alternatives, declared_fields, type_name

TEXTUAL = (
    pydantic.AnyUrl, MultiHostUrl, Url, PurePath,
    IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network,
)  # fmt: skip
"""Types whose canonical form is that of their text."""

_SCALARS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "bool"),
    ((int, Decimal), "number"),
    ((str, pydantic.SecretStr, *TEXTUAL), "text"),
    ((bytes, bytearray, pydantic.SecretBytes), "bytes"),
    (datetime, "instant"),
    (date, "date"),
    (time, "time"),
    (timedelta, "duration"),
    (UUID, "uuid"),
)
_PYDANTIC = {
    pydantic.AwareDatetime: "instant",
    pydantic.PastDatetime: "instant",
    pydantic.FutureDatetime: "instant",
    pydantic.PastDate: "date",
    pydantic.FutureDate: "date",
    pydantic.EmailStr: "text",
    pydantic.IPvAnyAddress: "text",
    pydantic.IPvAnyInterface: "text",
    pydantic.IPvAnyNetwork: "text",
    pydantic.Json: "any",
}


def kind_of(annotation: Any, *, floats: bool) -> str:
    """Return the kind of `annotation`; raise DeclarationError with the reason if it has no canonical form."""
    return _Reader(floats).kind(annotation)


class _Reader:
    def __init__(self, floats: bool) -> None:
        self._floats = floats
        self._open: list[Any] = []

    def kind(self, annotation: Any) -> str:
        kinds = {self._one(kind) for kind in alternatives(annotation)}
        return "|".join(sorted(kinds)) or "null"

    def _one(self, kind: Any) -> str:
        if kind is Any or kind is object:
            return "any"
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Literal, typing_extensions.Literal):
            return self._values(args)
        if kind in self._open:
            # A type inside itself: named by how far out it is, since its own kind is not known yet.
            return f"^{len(self._open) - self._open.index(kind)}"
        self._open.append(kind)
        try:
            return self._class(origin or kind, args, kind)
        finally:
            self._open.pop()

    def _class(self, kind: Any, args: tuple[Any, ...], whole: Any) -> str:
        if kind in _PYDANTIC:
            return _PYDANTIC[kind]
        if not isinstance(kind, type):
            raise DeclarationError(f"{type_name(whole)} has no canonical form.")
        if issubclass(kind, pydantic.Secret) and args:
            return self.kind(args[0])
        if issubclass(kind, Enum):
            return self._values(tuple(member.value for member in kind))
        self._refuse(kind)
        return self._scalar(kind) or self._fields(whole) or self._collection(kind, args)

    def _refuse(self, kind: type) -> None:
        if issubclass(kind, float) and not self._floats:
            raise DeclarationError("float is refused, as its text is not stable. Use Decimal, or name the field in allow_floats=.")
        if issubclass(kind, pydantic.NaiveDatetime):
            raise DeclarationError("a datetime without a zone is no point in time. Use AwareDatetime.")

    def _values(self, values: tuple[Any, ...]) -> str:
        return "|".join(sorted({self._one(type(value)) for value in values if value is not None})) or "null"

    def _scalar(self, kind: type) -> str | None:
        if issubclass(kind, float):
            return "number"
        return next((name for kinds, name in _SCALARS if issubclass(kind, kinds)), None)

    def _fields(self, kind: Any) -> str | None:
        if isinstance(kind, type) and issubclass(kind, pydantic.RootModel):
            return self.kind(kind.model_fields["root"].annotation)
        known = declared_fields(kind)
        if known is None:
            return None
        for name, declared in known.items():
            if declared.opaque and not declared.tracked:
                raise DeclarationError(f"{type_name(kind)}.{name} gets a default from a function, so that a redelivery would differ.")
        return "{" + ", ".join(f"{name} {self.kind(known[name].annotation)}" for name in sorted(known)) + "}"

    def _collection(self, kind: type, args: tuple[Any, ...]) -> str:
        if issubclass(kind, tuple) and hasattr(kind, "__annotations__") and hasattr(kind, "_fields"):
            return "[" + ", ".join(self.kind(hint) for hint in typing_extensions.get_type_hints(kind).values()) + "]"
        inside = [self.kind(arg) for arg in args if arg is not Ellipsis and arg != ()]
        if issubclass(kind, Mapping):
            return "map<" + ", ".join(inside or ["any"]) + ">"
        if issubclass(kind, AbstractSet):
            return "set<" + ", ".join(inside or ["any"]) + ">"
        if issubclass(kind, Sequence):
            return "[" + ", ".join(inside or ["any"]) + "]"
        raise DeclarationError(f"{type_name(kind)} has no canonical form.")

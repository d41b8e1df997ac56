"""A fingerprint with the model that it is taken from: what it makes of each message. Pure."""

import hmac
from collections.abc import Callable, Sequence
from hashlib import sha256
from operator import attrgetter
from struct import Struct
from typing import Any
from zlib import crc32

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.canonical import FORM, WITH_FLOATS, WITHOUT_FLOATS
from consumer_idem.inbox.fingerprint import DIGEST, Fingerprint
from consumer_idem.inbox.kinds import kind_of
from consumer_idem.inbox.locate import HeaderPart, Part
from consumer_idem.inbox.reading import CannotRead, Undecodable
from consumer_idem.inbox.shape import Target, resolve
from consumer_idem.inbox.walk import Gap, walk
from consumer_idem.message import Message

_WHOLE = b"consumer_idem fingerprint %d\n" % FORM
_FIELD = b"consumer_idem field %d\n" % FORM

Get = Callable[[Any, Message], Any]


class BoundFingerprint:
    """One version of a fingerprint with the model it is taken from."""

    __slots__ = ("_crcs", "_floats", "_keep", "_pepper", "_read", "_tables", "content", "keeps", "names", "version")

    def __init__(self, fingerprint: Fingerprint, model: Any) -> None:
        self.version = fingerprint.version
        self.names = fingerprint.names
        self._pepper = fingerprint.pepper
        self._tables = [WITH_FLOATS if name in fingerprint.allow_floats else WITHOUT_FLOATS for name in self.names]
        fields = [_bind(part, model, floats=str(part) in fingerprint.allow_floats) for part in fingerprint.parts]
        getters = [get for get, _ in fields]
        self._read = _read_all(getters)
        self._crcs = Struct(f">{len(getters)}I").pack
        self._floats = bool(fingerprint.allow_floats)
        self._keep = [(name, get) for name, get in zip(self.names, getters, strict=True) if name in fingerprint.keep]
        self.keeps = bool(self._keep)
        kinds = ", ".join(f"{name} {kind}" for name, (_, kind) in zip(self.names, fields, strict=True))
        self.content = f"form {FORM}: {kinds}{fingerprint.trace}"

    def take(self, payload: Any, message: Message) -> tuple[bytes, bytes]:
        """Return fingerprint and field digests of a message; raise Undecodable, with the field, if a value has no canonical form."""
        try:
            values = self._read(payload, message)
        except AttributeError:
            raise Undecodable("a field of the fingerprint is not in the payload") from None
        try:
            if self._floats:
                forms = [table[type(value)](value) for table, value in zip(self._tables, values, strict=True)]
            else:
                forms = [WITHOUT_FLOATS[type(value)](value) for value in values]
        except Exception:
            self._raise_named(values)
            raise
        pepper = self._pepper
        if pepper is None:
            # Four bytes of a better hash would tell no more, and take six times as long.
            return sha256(_WHOLE + b"".join(forms)).digest(), self._crcs(*map(crc32, forms))
        digests = [hmac.digest(pepper, _FIELD + form, "sha256")[:DIGEST] for form in forms]
        return hmac.digest(pepper, _WHOLE + b"".join(forms), "sha256"), b"".join(digests)

    def kept(self, payload: Any, message: Message) -> dict[str, Any]:
        """Return the values of the fields in `keep=` as JSON."""
        values = ((name, get(payload, message)) for name, get in self._keep)
        return {name: _jsonable(value) for name, value in values if type(value) is not Gap}

    def _raise_named(self, values: Sequence[Any]) -> None:
        for name, table, value in zip(self.names, self._tables, values, strict=True):
            try:
                table.encode(value)
            except CannotRead as problem:
                raise Undecodable(f"fingerprint field {name} {problem}") from None
            except Exception as error:
                raise Undecodable(f"fingerprint field {name} has no canonical form: {type(error).__name__}") from None


def _jsonable(value: Any) -> Any:
    if isinstance(value, list) and any(isinstance(item, bytes) for item in value):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return to_jsonable_python(value, fallback=str)


def _bind(part: Part, model: Any, *, floats: bool) -> tuple[Get, str]:
    if isinstance(part, HeaderPart):
        return _header(part.name), "header"
    target = resolve(model, part.path)
    if any(declared.opaque and not declared.tracked for step in target.steps for declared in step):
        raise DeclarationError(f"fingerprint field {part.path!r} gets a default from a function, so that a redelivery would differ.")
    try:
        return _getter(part.path, target), kind_of(target.annotation, floats=floats)
    except DeclarationError as problem:
        raise DeclarationError(f"fingerprint field {part.path!r}: {problem}") from None


def _read_all(getters: Sequence[Get]) -> Callable[[Any, Message], Sequence[Any]]:
    direct = [get.path for get in getters if isinstance(get, _Direct)]
    if len(direct) < len(getters) or len(direct) == 1:
        return lambda payload, message: [get(payload, message) for get in getters]
    # One call for all fields.
    read = attrgetter(*direct)
    return lambda payload, _: read(payload)


class _Direct:
    """Takes a field that attributes alone lead to."""

    __slots__ = ("_read", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._read = attrgetter(path)

    def __call__(self, payload: Any, _: Message) -> Any:
        return self._read(payload)


def _getter(path: str, target: Target) -> Get:
    segments = tuple(path.split("."))
    if target.opaque:
        return _sent_only(segments, target.opaque)
    return _Direct(path) if target.direct else lambda payload, _: walk(payload, segments)


def _header(name: str) -> Get:
    def get(_: Any, message: Message) -> Any:
        values = message.header_values(name)
        if len(values) == 1:
            return values[0]
        return values or Gap(1, null=False)

    return get


def _sent_only(segments: tuple[str, ...], opaque: tuple[int, ...]) -> Get:
    """Take a value that a default's function made up for absent: it differs from delivery to delivery."""

    def get(payload: Any, _: Message) -> Any:
        for step in opaque:
            parent = walk(payload, segments[:step])
            if isinstance(parent, BaseModel) and segments[step] not in parent.model_fields_set:
                return Gap(step + 1, null=False)
        return walk(payload, segments)

    return get

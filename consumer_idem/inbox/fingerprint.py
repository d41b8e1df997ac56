"""The fingerprint: a versioned hash of the canonical form of the key business fields. Pure.

Same key and same fingerprint: a duplicate. Same key and another fingerprint: a conflict. A digest of four bytes per field
is stored beside the fingerprint, so that a conflict can name the fields that differ without their values. Digests decide
nothing: two values share one by chance once in four billion pairs, and then the conflict stands but names one field less.
"""

import hmac
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.canonical import FORM, WITH_FLOATS, WITHOUT_FLOATS
from consumer_idem.inbox.kinds import kind_of
from consumer_idem.inbox.locate import FieldPart, Gap, HeaderPart, Locator, Part, walk
from consumer_idem.inbox.reading import CannotRead, Undecodable
from consumer_idem.inbox.shape import Target, resolve
from consumer_idem.message import Message

_WHOLE = b"consumer_idem fingerprint %d\n" % FORM
_FIELD = b"consumer_idem field %d\n" % FORM
_DIGEST = 4

Get = Callable[[Any, Message], Any]


class Print(NamedTuple):
    """What one version of a fingerprint makes of a message."""

    fingerprint: bytes
    field_digests: bytes
    """Four bytes for each field, in declared order."""
    names: tuple[str, ...]

    def differing(self, field_digests: bytes) -> tuple[str, ...]:
        """Return the names of the fields whose digests are not those in `field_digests`, which is another copy's."""
        return differing(self.names, self.field_digests, field_digests)


def differing(names: Sequence[str], one: bytes, other: bytes) -> tuple[str, ...]:
    """Return the names of the fields whose digests differ between two copies of one fingerprint version."""
    places = range(0, _DIGEST * len(names), _DIGEST)
    return tuple(name for name, at in zip(names, places, strict=True) if one[at : at + _DIGEST] != other[at : at + _DIGEST])


class Fingerprint:
    """Declares which fields and headers make two messages with one key the same, or a conflict.

    `Fingerprint("account", "customer.id", header("api-version"))`. Another choice of fields is another `version`; list the
    old one in `previous=` for as long as rows made under it should still be compared. `pepper` makes HMACs of all hashes,
    for personal data that could be guessed. `keep` stores the values of these fields in clear, `allow_floats` takes
    floats where they are given by the same text each time; without it a float is refused when the source is declared.
    """

    __slots__ = ("_pepper", "allow_floats", "keep", "parts", "previous", "version")

    def __init__(
        self,
        *fields: str | Locator,
        version: int = 1,
        previous: Sequence["Fingerprint"] = (),
        pepper: SecretStr | str | bytes | None = None,
        keep: Collection[str] = (),
        allow_floats: Collection[str] = (),
    ) -> None:
        self.parts = tuple(map(_part, fields))
        self.version = version
        self.previous = tuple(previous)
        self.keep = _names(keep, "keep")
        self.allow_floats = _names(allow_floats, "allow_floats")
        self._pepper = _secret(pepper)
        self._check()

    def __repr__(self) -> str:
        return f"Fingerprint({', '.join(map(repr, self.names))}, version={self.version})"

    @property
    def names(self) -> tuple[str, ...]:
        """The fields in declared order, as conflicts name them; a header is `header(its-name)`."""
        return tuple(map(str, self.parts))

    @property
    def pepper(self) -> bytes | None:
        """The secret as bytes."""
        return self._pepper

    @property
    def trace(self) -> str:
        """What the registered content says of the pepper: enough to notice another one, nothing to guess it from."""
        return "" if self._pepper is None else f" pepper {hmac.digest(self._pepper, b'consumer_idem pepper', 'sha256')[:_DIGEST].hex()}"

    def _check(self) -> None:
        if not self.parts:
            raise DeclarationError("A Fingerprint needs at least one field.")
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise DeclarationError(f"Fingerprint names {repeated[0]!r} twice.")
        if type(self.version) is not int or not 1 <= self.version <= 32767:
            raise DeclarationError(f"Fingerprint version {self.version!r} is not a number from 1 to 32767.")
        for option in ("keep", "allow_floats"):
            unknown = [name for name in getattr(self, option) if name not in self.names]
            if unknown:
                raise DeclarationError(f"{option}= names {unknown[0]!r}, which is not a field of the fingerprint.")
        self._check_previous()

    def _check_previous(self) -> None:
        versions = [self.version]
        for older in self.previous:
            if older.previous:
                raise DeclarationError(f"previous= lists version {older.version}, which has a previous= itself. Put all into one list.")
            if older.version in versions:
                raise DeclarationError(f"Fingerprint version {older.version} is there twice. Each version is one choice of fields.")
            versions.append(older.version)


def _part(place: str | Locator) -> Part:
    if isinstance(place, Locator):
        if len(place.parts) != 1:
            raise DeclarationError("A Fingerprint lists its fields one by one, not through fields().")
        return place.parts[0]
    if "" in str(place).split("."):
        raise DeclarationError(f"Fingerprint field {place!r} is not a dotted path. Name a field, or use header().")
    return FieldPart(str(place))


def _names(names: Collection[str], option: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise DeclarationError(f"{option}={names!r} is one string. Write a tuple: {option}=({names!r},).")
    return tuple(names)


def _secret(pepper: SecretStr | str | bytes | None) -> bytes | None:
    if pepper is None:
        return None
    value = pepper.get_secret_value() if isinstance(pepper, SecretStr) else pepper
    secret = value.encode() if isinstance(value, str) else value
    if not secret:
        raise DeclarationError("pepper= is empty, which protects nothing. Give it a secret, or leave it out.")
    return secret


class BoundFingerprint:
    """One version of a fingerprint with the model it is taken from."""

    __slots__ = ("_floats", "_keep", "_pepper", "_read", "_tables", "content", "keeps", "names", "version")

    def __init__(self, fingerprint: Fingerprint, model: Any) -> None:
        self.version = fingerprint.version
        self.names = fingerprint.names
        self._pepper = fingerprint.pepper
        self._tables = [WITH_FLOATS if name in fingerprint.allow_floats else WITHOUT_FLOATS for name in self.names]
        fields = [_bind(part, model, floats=str(part) in fingerprint.allow_floats) for part in fingerprint.parts]
        getters = [get for get, _ in fields]
        self._read = _read_all(getters)
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
            return sha256(_WHOLE + b"".join(forms)).digest(), b"".join([crc32(form).to_bytes(_DIGEST, "big") for form in forms])
        digests = [hmac.digest(pepper, _FIELD + form, "sha256")[:_DIGEST] for form in forms]
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

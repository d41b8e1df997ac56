"""The canonical form of a value: equal meaning gives equal bytes, different meaning different bytes. Pure.

    ~                      null
    -D;                    nothing there: the path ends at its segment D        ^D;  its segment D is null
    t  f                   true, false
    n12.5;                 a number by value: the shortest text of its exact decimal value, 1.25E+20 where it is long
    sLENGTH:…              text in UTF-8, exactly as it is                      bLENGTH:…  bytes
    iDAYS,SECONDS,MICROS;  a point in time since 1970 in UTC                    pDAYS,SECONDS,MICROS;  a duration
    dYYYY-MM-DD;           a date
    cMICROS;  zMICROS;     a time of day without a zone; with one, less its offset
    u + 16 bytes           a UUID
    lCOUNT:…               a list: its items                                    eCOUNT:…  a set: its items, sorted
    mCOUNT:…               a mapping, or an object with fields: key and value after each other, sorted by key

Every form ends by itself, so a row of them can be read back in one way only. Forms depend on the value alone and not on
the type that declares it: enums are their values, `int` and `Decimal` one kind of number. FORM counts the versions of this.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic import BaseModel, RootModel, Secret, SecretBytes, SecretStr

from consumer_idem.inbox.kinds import TEXTUAL
from consumer_idem.inbox.reading import Undecodable
from consumer_idem.inbox.shape import declared_fields
from consumer_idem.inbox.walk import MISSING, Gap

FORM = 1
"""The number of this canonical form. Another form is another number, and so another fingerprint."""

Encode = Callable[[Any], bytes]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, capitals=1, traps=[])
_SMALL = 10**18


def _null(_: object) -> bytes:
    return b"~"


def _gap(value: Gap) -> bytes:
    return b"%c%d;" % (b"^" if value.null else b"-", value.depth)


def _bool(value: bool) -> bytes:
    return b"t" if value else b"f"


def _int(value: int) -> bytes:
    # A small number that does not end in 0 is its own shortest text.
    if value % 10 and -_SMALL < value < _SMALL:
        return b"n%d;" % value
    return _decimal(Decimal(value))


def _decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        raise Undecodable("is not a finite number")
    if not value:
        return b"n0;"
    return b"n%b;" % _EXACT.to_sci_string(_EXACT.normalize(value)).encode()


def _float(value: float) -> bytes:
    return _decimal(Decimal(float.__repr__(value)))


def _no_float(_: float) -> bytes:
    raise Undecodable("is a float, which is not in allow_floats")


def _text(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "surrogatepass")
    return b"s%d:%b" % (len(raw), raw)


def _bytes(value: bytes) -> bytes:
    return b"b%d:%b" % (len(value), value)


def _instant(value: datetime) -> bytes:
    if value.utcoffset() is None:
        raise Undecodable("is a datetime without a zone")
    since = value - _EPOCH
    return b"i%d,%d,%d;" % (since.days, since.seconds, since.microseconds)


def _duration(value: timedelta) -> bytes:
    return b"p%d,%d,%d;" % (value.days, value.seconds, value.microseconds)


def _date(value: date) -> bytes:
    return b"d%b;" % value.isoformat().encode()


def _time(value: time) -> bytes:
    clock = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    offset = value.utcoffset()
    since = clock if offset is None else clock - offset
    return b"%c%d;" % (b"c" if offset is None else b"z", since // timedelta(microseconds=1))


def _uuid(value: UUID) -> bytes:
    return b"u" + value.bytes


class Canonical(dict[type, Encode]):
    """How each type is encoded: `canonical[type(value)](value)`. Types are learned when they are first met."""

    def __init__(self, *, floats: bool) -> None:
        super().__init__(_SCALARS)
        self[float] = _float if floats else _no_float

    def encode(self, value: Any) -> bytes:
        """Return the canonical form of `value`; raise Undecodable if it has none."""
        return self[type(value)](value)

    def __missing__(self, kind: type) -> Encode:
        encode = self._learn(kind)
        self[kind] = encode
        return encode

    def _learn(self, kind: type) -> Encode:
        if issubclass(kind, Enum):
            return lambda value: self.encode(value.value)
        if issubclass(kind, (SecretStr, SecretBytes, Secret)):
            return lambda value: self.encode(value.get_secret_value())
        if issubclass(kind, TEXTUAL):
            return lambda value: _text(str(value))
        if issubclass(kind, RootModel):
            return lambda value: self.encode(value.root)
        if issubclass(kind, BaseModel):
            return self._model(kind)
        if is_dataclass(kind):
            return self._dataclass(kind)
        known = next((base for base in kind.__mro__ if base in self), None)
        return self._collection(kind) if known is None else self[known]

    def _collection(self, kind: type) -> Encode:
        if issubclass(kind, Mapping):
            return self._mapping
        if issubclass(kind, AbstractSet):
            return self._set
        if issubclass(kind, Sequence):
            return self._list
        raise Undecodable(f"is a {kind.__name__}, which has no canonical form")

    def _list(self, values: Sequence[Any]) -> bytes:
        return b"l%d:" % len(values) + b"".join([self[type(value)](value) for value in values])

    def _set(self, values: AbstractSet[Any]) -> bytes:
        return b"e%d:" % len(values) + b"".join(sorted([self[type(value)](value) for value in values]))

    def _mapping(self, values: Mapping[Any, Any]) -> bytes:
        return _pairs([(self.encode(key), self.encode(value)) for key, value in values.items()])

    def _model(self, kind: type[BaseModel]) -> Encode:
        declared = declared_fields(kind) or {}
        names = [(_text(name), name) for name in declared]
        # What a function makes up for an absent field differs from delivery to delivery: it counts as absent.
        opaque = {name for name, field in declared.items() if field.opaque}

        def encode(value: BaseModel) -> bytes:
            absent = opaque - value.model_fields_set
            pairs = [(key, getattr(value, name, MISSING)) for key, name in names if name not in absent]
            pairs += [(_text(name), extra) for name, extra in (value.model_extra or {}).items()]
            return self._fields(pairs)

        return encode

    def _dataclass(self, kind: Any) -> Encode:
        names = [(_text(field.name), field.name) for field in fields(kind)]
        return lambda value: self._fields([(key, getattr(value, name, MISSING)) for key, name in names])

    def _fields(self, pairs: Sequence[tuple[bytes, Any]]) -> bytes:
        return _pairs([(key, self.encode(value)) for key, value in pairs if value is not MISSING])


def _pairs(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"m%d:" % len(pairs) + b"".join([key + value for key, value in sorted(pairs)])


_SCALARS: dict[type, Encode] = {
    type(None): _null,
    Gap: _gap,
    bool: _bool,
    int: _int,
    Decimal: _decimal,
    str: _text,
    bytes: _bytes,
    bytearray: _bytes,
    datetime: _instant,
    date: _date,
    time: _time,
    timedelta: _duration,
    UUID: _uuid,
}

WITHOUT_FLOATS = Canonical(floats=False)
WITH_FLOATS = Canonical(floats=True)

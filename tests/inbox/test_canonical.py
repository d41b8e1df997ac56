"""The canonical form: equal meaning gives equal bytes, another meaning other bytes, and a row of forms is read in one way only."""

from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import ip_address
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, Secret, SecretBytes, SecretStr

from consumer_idem.inbox.canonical import WITH_FLOATS, WITHOUT_FLOATS
from consumer_idem.inbox.reading import Undecodable
from consumer_idem.inbox.walk import Gap

encode = WITHOUT_FLOATS.encode


class Currency(StrEnum):
    EUR = "EUR"


class Level(IntEnum):
    HIGH = 3


class Flag(Enum):
    ON = True
    TUPLE = ("a", 1)


class Point(BaseModel):
    y: int
    x: int = 0


@dataclass
class PlainPoint:
    x: int
    y: int


class Points(RootModel[list[Point]]):
    pass


class Extended(BaseModel):
    model_config = ConfigDict(extra="allow")
    y: int


UUID_1 = UUID("00112233-4455-6677-8899-aabbccddeeff")
Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, b"~"),
        (Gap(2, null=False), b"-2;"),
        (Gap(1, null=True), b"^1;"),
        (True, b"t"),
        (False, b"f"),
        (0, b"n0;"),
        (-17, b"n-17;"),
        (120, b"n1.2E+2;"),
        (2**64, b"n18446744073709551616;"),
        (Decimal("12.50"), b"n12.5;"),
        (Decimal("-0.0"), b"n0;"),
        (Decimal("0E+9"), b"n0;"),
        (Decimal("1E+999999999"), b"n1E+999999999;"),
        (Decimal("1E-999999999"), b"n1E-999999999;"),
        ("", b"s0:"),
        ("é|;:", b"s5:\xc3\xa9|;:"),
        ("\0", b"s1:\0"),
        ("\ud800", b"s3:\xed\xa0\x80"),
        (b"\xff;", b"b2:\xff;"),
        (bytearray(b"a"), b"b1:a"),
        (datetime(1970, 1, 2, 1, 0, 1, 5, tzinfo=timezone(timedelta(hours=1))), b"i1,1,5;"),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), b"i-1,86399,0;"),
        (date(2026, 3, 1), b"d2026-03-01;"),
        (time(1, 0, 0, 7), b"c3600000007;"),
        (time(1, tzinfo=timezone(timedelta(hours=2))), b"z-3600000000;"),
        (timedelta(days=-1, microseconds=3), b"p-1,0,3;"),
        (UUID_1, b"u" + UUID_1.bytes),
        ([1, "a"], b"l2:n1;s1:a"),
        ((), b"l0:"),
        ({"b", "a"}, b"e2:s1:as1:b"),
        ({"b": 1, "a": None}, b"m2:s1:a~s1:bn1;"),
        (Currency.EUR, b"s3:EUR"),
        (Level.HIGH, b"n3;"),
        (Flag.ON, b"t"),
        (Flag.TUPLE, b"l2:s1:an1;"),
        (Point(x=1, y=2), b"m2:s1:xn1;s1:yn2;"),
        (Points([Point(y=1)]), b"l1:m2:s1:xn0;s1:yn1;"),
        (Extended.model_validate({"y": 1, "a": "b"}), b"m2:s1:as1:bs1:yn1;"),
        (SecretStr("a"), b"s1:a"),
        (SecretBytes(b"a"), b"b1:a"),
        (Secret(3), b"n3;"),
        (pydantic.HttpUrl("https://a.example/x"), b"s19:https://a.example/x"),
        (ip_address("::1"), b"s3:::1"),
        (PurePosixPath("a/b"), b"s3:a/b"),
    ],
)
def test_each_kind_of_value_has_its_form(value, form):
    assert encode(value) == form


EQUAL = [
    [1, Decimal("1"), Decimal("1.0"), Decimal("10E-1"), Decimal("0.1E1")],
    [100, Decimal("1E+2"), Decimal("100.00")],
    [10**30, Decimal(10) ** 30],
    [0, Decimal("-0"), Decimal("0E-10")],
    ["EUR", Currency.EUR, SecretStr("EUR")],
    [[1, 2], (1, 2), deque([1, 2]), Pair(1, 2), range(1, 3)],
    [{1, 2}, frozenset([2, 1])],
    [{"x": 1, "y": 2}, OrderedDict(y=2, x=1), Point(x=1, y=2), PlainPoint(x=1, y=2)],
    [datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 7, 1, 14, tzinfo=ZoneInfo("Europe/Berlin"))],
    [time(10, tzinfo=UTC), time(12, tzinfo=timezone(timedelta(hours=2)))],
    [b"a", bytearray(b"a"), SecretBytes(b"a")],
]


@pytest.mark.parametrize("values", EQUAL)
def test_equal_meaning_has_one_form(values):
    assert len({encode(value) for value in values}) == 1


DIFFERENT = [
    None, Gap(1, null=False), Gap(1, null=True), Gap(2, null=False), True, False, 0, 1, "", "0", "1", "true", b"", b"1", [], [[]], [None],
    set(), {}, {"": ""}, {1: 2}, {2: 1}, {"1": 2}, ["a", "b"], ["ab"], [["a"], "b"], [["a", "b"]], {"a", "b"}, {"a": "b"}, "é", "e\u0301",
    date(2026, 1, 1), "2026-01-01", datetime(2026, 1, 1, tzinfo=UTC), time(0), time(0, tzinfo=UTC), timedelta(0), timedelta(days=1), UUID_1,
    UUID_1.bytes, str(UUID_1), Point(y=0), Decimal("0.1"), Decimal("0.10000000000000000000000000000001"), 10**40, 10**40 + 1,
]  # fmt: skip


def test_different_meanings_have_different_forms():
    forms = [encode(value) for value in DIFFERENT]

    assert len(set(forms)) == len(forms)
    # Prefix-free: no form is the beginning of another one, so that nothing behind it can change how it is read.
    assert not [(one, other) for one, other in combinations(sorted(forms), 2) if other.startswith(one)]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.binary(max_size=6)
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.datetimes(timezones=st.timezones())
    | st.times()
)
VALUES = st.recursive(
    SCALARS, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3), max_leaves=8
)


@given(st.lists(VALUES, max_size=5))
def test_a_row_of_forms_is_read_back_as_what_was_written(values):
    forms = b"".join(map(encode, values))

    assert read_back(forms) == [meaning(value) for value in values]


@given(VALUES, VALUES)
def test_forms_are_equal_exactly_if_meanings_are(one, other):
    assert (encode(one) == encode(other)) == (meaning(one) == meaning(other))


def meaning(value: Any) -> Any:
    """What a value says, with its kind: Python itself takes True for 1."""
    if isinstance(value, list):
        return [meaning(inside) for inside in value]
    if isinstance(value, dict):
        return {name: meaning(inside) for name, inside in value.items()}
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return "number", Decimal(value)
    if isinstance(value, datetime):
        return "instant", value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC) if _in_calendar(value) else value - datetime(
            1970, 1, 1, tzinfo=UTC
        )
    return type(value).__name__, value


def _in_calendar(value: datetime) -> bool:
    return 2 <= value.year <= 9998


def read_back(forms: bytes) -> list[Any]:
    """Read forms as a stranger would, from their description alone."""
    found: list[Any] = []
    while forms:
        value, forms = _one(forms)
        found.append(value)
    return found


def _one(forms: bytes) -> tuple[Any, bytes]:
    tag, rest = chr(forms[0]), forms[1:]
    if tag in "~tf":
        return {"~": ("NoneType", None), "t": ("bool", True), "f": ("bool", False)}[tag], rest
    if tag == "u":
        return ("UUID", UUID(bytes=rest[:16])), rest[16:]
    if tag in "sb":
        size, _, rest = rest.partition(b":")
        raw, rest = rest[: int(size)], rest[int(size) :]
        return (("str", raw.decode()) if tag == "s" else ("bytes", raw)), rest
    if tag in "lm":
        return _many(tag, rest)
    text, _, rest = rest.partition(b";")
    return _ended(tag, text.decode()), rest


def _many(tag: str, rest: bytes) -> tuple[Any, bytes]:
    count, _, rest = rest.partition(b":")
    found = []
    for _ in range(int(count) * (2 if tag == "m" else 1)):
        value, rest = _one(rest)
        found.append(value)
    return (found if tag == "l" else {name: value for (_, name), value in zip(found[::2], found[1::2], strict=True)}), rest


def _ended(tag: str, text: str) -> Any:
    if tag == "n":
        return "number", Decimal(text)
    if tag == "d":
        return "date", date.fromisoformat(text)
    if tag == "c":
        return "time", (datetime(1, 1, 1) + timedelta(microseconds=int(text))).time()  # noqa: DTZ001 - a clock has no zone
    days, seconds, micros = map(int, text.split(","))
    return {"i": "instant", "p": "timedelta"}[tag], timedelta(days, seconds, micros)


# What has no canonical form


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1.5, "is a float"),
        ([1.5], "is a float"),
        (Decimal("NaN"), "not a finite number"),
        (Decimal("sNaN"), "not a finite number"),
        (Decimal("-Infinity"), "not a finite number"),
        (datetime(2026, 1, 1), "without a zone"),  # noqa: DTZ001 - what is to be refused
        (Fraction(1, 3), "is a Fraction"),
        (object(), "is a object"),
        (iter([1]), "is a list_iterator"),
        (1j, "is a complex"),
    ],
)
def test_what_has_no_form_is_refused(value, says):
    with pytest.raises(Undecodable, match=says):
        encode(value)


def test_floats_are_numbers_by_their_shortest_text_where_they_are_allowed():
    assert [WITH_FLOATS.encode(value) for value in (0.1, 1.0, -0.0, 1e22)] == [b"n0.1;", b"n1;", b"n0;", b"n1E+22;"]
    for value in (float("nan"), float("inf")):
        with pytest.raises(Undecodable, match="not a finite number"):
            WITH_FLOATS.encode(value)


class Token:
    made = 0


def _next() -> int:
    Token.made += 1
    return Token.made


class Made(BaseModel):
    name: str
    token: int = Field(default_factory=_next)
    tags: list[str] = Field(default_factory=list)


def test_what_a_function_made_up_for_an_absent_field_is_absent():
    first, second = Made(name="a"), Made(name="a")

    assert first != second
    assert encode(first) == encode(second) == b"m2:s4:names1:as4:tagsl0:"
    assert encode(Made(name="a", token=1)) != encode(first)


@pytest.mark.skipif(not hasattr(pydantic, "MISSING"), reason="this pydantic has no MISSING")
def test_missing_is_absent():
    class Partial(BaseModel):
        a: int | pydantic.MISSING | None = pydantic.MISSING

    assert [encode(value) for value in (Partial(), Partial(a=None))] == [b"m0:", b"m1:s1:a~"]


def test_a_subclass_is_what_it_extends():
    class Account(str):
        __slots__ = ()

    class Cents(int):
        pass

    @dataclass
    class Tagged(PlainPoint):
        tags: list[str] = field(default_factory=list)

    assert encode(Account("a")) == encode("a")
    assert encode(Cents(3)) == encode(3)
    assert encode(Tagged(1, 2)) == encode({"x": 1, "y": 2, "tags": []})

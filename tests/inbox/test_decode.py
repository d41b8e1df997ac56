"""Nothing is lost between the JSON text and the model: no name, no digit."""

import json
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Strict

from consumer_idem.inbox.decode import Decoder
from consumer_idem.inbox.reading import Undecodable


class Amounts(BaseModel):
    exact: Decimal | None = None
    whole: int | None = None
    rough: float | None = None
    text: str | None = None
    anything: Any = None
    inside: "Amounts | None" = None
    several: list[Decimal] = []


amounts = Decoder(Amounts)


def json_of(exact: str) -> bytes:
    return b'{"exact": %b}' % exact.encode()


# Numbers

DIGITS = st.text("0123456789", min_size=1, max_size=30)
NUMBERS = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole.lstrip('0') or '0'}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    DIGITS,
    DIGITS.map(lambda digits: f".{digits}") | st.just(""),
    st.integers(-330, 270).map(lambda exponent: f"e{exponent}") | st.just(""),
)


@given(NUMBERS)
@example("12345678901234567890.12")
@example("0.1000000000000000055")
@example("1.5e-400")
@example("5e-324")
@example("141000000000000.12")
@example("0.30000000000000004")
@example("1.234567890123456e15")
@example("-0.0")
def test_a_number_is_read_exactly(text):
    assert amounts.json(json_of(text)).exact == Decimal(text)


@given(NUMBERS, NUMBERS)
def test_two_amounts_are_equal_only_if_they_are(one, other):
    assert (amounts.json(json_of(one)) == amounts.json(json_of(other))) == (Decimal(one) == Decimal(other))


@pytest.mark.parametrize("text", ["9007199254740993.0", "123456789012345678.0e1"])
def test_a_whole_number_with_a_fraction_point_is_exact(text):
    assert amounts.json(b'{"whole": %b}' % text.encode()).whole == int(Decimal(text))


def test_whole_numbers_have_any_size():
    assert amounts.json(b'{"whole": %d, "exact": %d}' % (2**200, 2**200)) == Amounts(whole=2**200, exact=Decimal(2**200))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e99999999999999999999", '"NaN"'])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(Undecodable):
        amounts.json(json_of(text))


@pytest.mark.parametrize("text", ["1e400", "NaN"])
def test_a_float_does_not_become_infinite(text):
    with pytest.raises(Undecodable, match="Invalid JSON"):
        amounts.json(b'{"rough": %b}' % text.encode())


def test_a_float_field_takes_long_numbers_as_floats():
    assert amounts.json(b'{"rough": 52.520006599999999999}').rough == 52.5200066


def test_any_gets_the_exact_number_where_a_float_would_not_do():
    anything = amounts.json(b'{"anything": [0.5, 0.30000000000000004, 12345678901234567890.12]}').anything

    assert anything == [0.5, 0.30000000000000004, Decimal("12345678901234567890.12")]
    assert [type(number) for number in anything] == [float, float, Decimal]


def test_long_digits_in_a_text_are_no_number():
    assert amounts.json(b'{"text": "12345678901234567890.12", "rough": 1.5}').text == "12345678901234567890.12"


def test_long_numbers_are_exact_at_any_depth():
    inside = amounts.json(b'{"inside": {"several": [1, 2.5, 12345678901234567890.12]}}').inside

    assert inside is not None
    assert inside.several == [Decimal(1), Decimal("2.5"), Decimal("12345678901234567890.12")]


class StrictAmounts(BaseModel):
    model_config = ConfigDict(strict=True)
    exact: Decimal
    wait: timedelta | None = None


def test_a_strict_model_validates_as_json():
    assert Decoder(StrictAmounts).json(b'{"exact": "1.50", "wait": "PT1S"}').wait == timedelta(seconds=1)


def test_a_strict_model_refuses_what_cannot_be_exact():
    # In strict mode a duration is taken from JSON only, and an exact Decimal from Python only.
    with pytest.raises(Undecodable, match="send them as strings"):
        Decoder(StrictAmounts).json(b'{"exact": 12345678901234567890.12, "wait": "PT1S"}')


class SameById(BaseModel):
    id: str
    exact: Decimal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameById) and self.id == other.id


def test_a_model_with_an_equality_of_its_own_is_exact():
    assert Decoder(SameById).json(b'{"id": "a", "exact": 12345678901234567890.12}').exact == Decimal("12345678901234567890.12")


# Names


@pytest.mark.parametrize(
    "text",
    [
        b'{"text": "a", "text": "a"}',
        b'{"text": "a", "text": "b"}',
        b'{"whole": 1, "whole": 2}',
        b'{"whole": 1, "whole" : 2}',
        b'{"whole": 1, "\\u0077hole": 2}',
        b'{"text": "a\\\\", "text": "b\\\\", "whole": 1}',
        b'{"whole":1,"whole":"\\\\","text":"\\\\"}',
        b'{"whole":1,"whole":"\\"","text":"\\""}',
        b'{"unknown": {"a": 1, "b": {"c": 1, "c": 2}}}',
        b'{"unknown": [[{"a": null, "a": null}]]}',
        b'{"": 1, "": 2}',
    ],
)
def test_a_name_that_is_there_twice_is_refused(text):
    with pytest.raises(Undecodable, match="a name occurs twice"):
        amounts.json(text)


class Pairs(list[tuple[str, Any]]):
    """An object as its pairs, names may repeat."""


TEXTS = st.text(st.sampled_from('a"\\:{},é\n '), max_size=4)
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | TEXTS | st.just(1.5),
    lambda inside: st.lists(inside, max_size=3) | st.lists(st.tuples(TEXTS, inside), max_size=4).map(Pairs),
    max_leaves=10,
)


def written(value: Any, escapes: bool) -> str:
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=escapes)} :{written(inside, escapes)}" for name, inside in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(inside, escapes) for inside in value) + "]"
    return json.dumps(value, ensure_ascii=escapes)


def repeats(value: Any) -> bool:
    if isinstance(value, Pairs):
        names = [name for name, _ in value]
        return len(set(names)) < len(names) or any(repeats(inside) for _, inside in value)
    return isinstance(value, list) and any(map(repeats, value))


@given(VALUES, st.booleans())
def test_exactly_the_texts_with_a_repeated_name_are_refused(value, escapes):
    text = f'{{"anything": {written(value, escapes)}}}'.encode()

    try:
        amounts.json(text)
    except Undecodable:
        assert repeats(value)
    else:
        assert not repeats(value)


def test_the_same_name_in_two_objects_is_fine():
    assert amounts.json(b'{"text": "a", "inside": {"text": "a"}}').inside == Amounts(text="a")


# Texts


@pytest.mark.parametrize(
    "value", [b"", b" ", b"null", b"[]", b'"text"', b"7", b"true", b"{", b'{"text": "\xff"}', b'{"text": "\\ud800"}', b"\xef\xbb\xbf{}"]
)
def test_what_is_not_the_model_in_json_is_refused(value):
    with pytest.raises(Undecodable):
        amounts.json(value)


def test_a_null_character_is_a_character():
    assert amounts.json(b'{"text": "a\\u0000b"}').text == "a\0b"


@dataclass
class Wrapped:
    values: Annotated[list[int], Strict()]


def test_the_top_may_be_any_type_that_the_model_is():
    assert Decoder(Wrapped).json(b'{"values": [1]}') == Wrapped([1])
    assert Decoder(list[int]).json(b"[1, 2]") == [1, 2]
    assert Decoder(str).json(b'"a"') == "a"

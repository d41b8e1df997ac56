"""Different keys have different hashes and readable ids, and whatever an id is made of, PostgreSQL takes what comes out."""

from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_idem.inbox.key import Keys, bucket, id_text, printable, readable
from consumer_idem.inbox.reading import Unidentifiable

ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=6)
AMBIGUOUS_TEXT = st.text("a1:;|\\#", min_size=1, max_size=4)
PARTS = st.lists(ANY_TEXT | AMBIGUOUS_TEXT, min_size=1, max_size=3).map(tuple)
TENANTS = st.just(()) | PARTS
KEYS = st.tuples(AMBIGUOUS_TEXT, AMBIGUOUS_TEXT, TENANTS, PARTS)


def key_hash(scope: str, source: str, tenant: tuple[str, ...], message_id: tuple[str, ...]) -> UUID:
    return Keys(scope, source).hash(message_id, tenant)


@given(KEYS, KEYS)
def test_key_hashes_are_equal_exactly_if_keys_are(one, other):
    assert (key_hash(*one) == key_hash(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c", (), ("1",)), ("a", "bc", (), ("1",))),
        (("a", "b", (), ("1", "2")), ("a", "b", (), ("12",))),
        (("a", "b", ("1",), ("2",)), ("a", "b", (), ("1", "2"))),
        (("a", "b", ("1", "2"), ("3",)), ("a", "b", ("1",), ("2", "3"))),
        (("a", "b", (), ("1|2",)), ("a", "b", (), ("1", "2"))),
        (("a", "b", (), ("\ud83d\ude00",)), ("a", "b", (), ("\U0001f600",))),
    ],
)
def test_parts_cannot_be_shifted(one, other):
    assert key_hash(*one) != key_hash(*other)


@given(PARTS, PARTS)
def test_readable_ids_are_equal_exactly_if_ids_are(one, other):
    assert (readable(one) == readable(other)) == (one == other)


@given(PARTS | st.text("x\\|\ud800", min_size=300, max_size=400).map(lambda text: (text,)))
def test_readable_ids_are_text_that_postgresql_takes(parts):
    text = readable(parts)

    assert "\0" not in text
    assert text.encode("utf-8").decode("utf-8") == text
    assert len(text) <= 200


def test_a_readable_id_is_the_id_where_that_can_be_read():
    assert readable(("A-17/é 漢",)) == "A-17/é 漢"
    assert readable(("A-17", "3")) == "A-17|3"
    assert readable(("a|b\\c\n\x7f\ud800",)) == "a\\|b\\\\c\\x0a\\x7f\\ud800"


def test_a_long_id_is_its_beginning_and_a_hash():
    one, other = readable(("x" * 10_000 + "a",)), readable(("x" * 10_000 + "b",))

    assert one != other
    assert one.startswith("x" * 120 + "\\#")
    assert len(one) == 120 + 2 + 64


@given(st.integers(0, 130), PARTS)
def test_no_short_id_looks_like_a_long_one(backslashes, parts):
    long = readable(("\\" * backslashes + "x" * 201,))

    assert readable((long,)) != long
    assert readable(parts) != long


def test_printable_keeps_what_can_be_seen():
    assert printable("a|\\b\0\ud800é") == "a|\\b\\x00\\ud800é"


# What an id may be


class Shop(StrEnum):
    A = "a"


class Lane(IntEnum):
    FAST = 2


class Kind(Enum):
    TEXT = "kind"
    NOTHING = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("17", "17"),
        (17, "17"),
        (-(10**30), "-1" + "0" * 30),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Shop.A, "a"),
        (Lane.FAST, "2"),
        (Kind.TEXT, "kind"),
        (date(2026, 3, 1), "2026-03-01"),
        (datetime(2026, 3, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2026-02-28T23:00:00+00:00"),
        (b"\xc3\xa9", "é"),
        (" a ", " a "),
    ],
)
def test_an_id_is_its_text(value, text):
    assert id_text(value) == text


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what is to be refused
BEFORE_ALL_TIME = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=3)))


@pytest.mark.parametrize(
    "value", [None, "", " ", "\t\n", b"", b"\xff", True, 1.0, 1j, [], ("a",), object(), Kind.NOTHING, NAIVE, BEFORE_ALL_TIME]
)
def test_what_has_no_stable_text_is_no_id(value):
    with pytest.raises(Unidentifiable):
        id_text(value)


# The form of a key hash


def test_a_key_hash_is_a_plain_uuid_with_its_tag_in_front():
    made: Any = Keys("scope", "source").hash(("1",))

    assert type(made) is UUID
    assert made.bytes[0] == 0
    assert (UUID(bytes=made.bytes), hash(made), str(made)) == (made, hash(UUID(str(made))), str(UUID(int=made.int)))
    assert made.is_safe is UUID(int=0).is_safe


@given(st.datetimes(timezones=st.timezones()), st.datetimes(timezones=st.timezones()))
def test_keys_of_later_minutes_come_later(one, other):
    keys = Keys("scope", "source")
    first, second = keys.hash(("a",), (), one), keys.hash(("b",), (), other)

    assert first.bytes[0] == second.bytes[0] == 1
    if bucket(one) < bucket(other):
        assert first < second


@pytest.mark.parametrize(
    ("moment", "minutes"),
    [
        (datetime(1970, 1, 1, 0, 0, 59, 999999, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 1, tzinfo=UTC), 1),
        (datetime(1969, 1, 1, tzinfo=UTC), 0),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), 0),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 29453760),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), 4223371679 + 14 * 60),
    ],
)
def test_a_bucket_is_a_minute(moment, minutes):
    assert bucket(moment) == minutes < 2**32


def test_the_time_does_not_take_the_place_of_the_id():
    keys, moment = Keys("scope", "source"), datetime(2026, 1, 1, tzinfo=UTC)

    assert keys.hash(("a",), (), moment) != keys.hash(("b",), (), moment)
    assert keys.hash(("a",), (), moment).bytes[5:] == keys.hash(("a",)).bytes[1:12]

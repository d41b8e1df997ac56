"""An id that a person types is found under the hash that its message got."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel

from consumer_idem.inbox.key import readable
from consumer_idem.inbox.source import Fingerprint, Reading, Source, field, fields
from consumer_idem.inbox.spelled import IdNotUnderstood, key_hashes, parts_of
from consumer_idem.message import Message


class At(BaseModel):
    order: str
    at: AwareDatetime


class Two(BaseModel):
    order: str
    line: int


def hash_of(source: Source[BaseModel], payload: BaseModel) -> UUID:
    reading = source.read(Message(topic="t", partition=0, offset=0, value=payload.model_dump_json().encode()), "scope")
    assert isinstance(reading, Reading)
    return reading.key_hash


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, max_size=3))
def test_the_readable_form_leads_back_to_the_parts(parts: list[str]) -> None:
    assert parts_of(readable(parts)) == tuple(parts)


def test_the_short_form_of_a_long_id_is_refused() -> None:
    with pytest.raises(IdNotUnderstood, match="short form of a long id"):
        parts_of(readable(["x" * 500]))


def test_the_parts_of_an_id_are_given_apart_or_as_one_text() -> None:
    source = Source("s", model=Two, message_id=fields("order", "line"), fingerprint=Fingerprint("order"))
    expected = hash_of(source, Two(order="a|b", line=3))

    assert expected in key_hashes(source, "scope", ["a|b", "3"], None)
    assert expected in key_hashes(source, "scope", [r"a\|b|3"], None)
    assert expected not in key_hashes(source, "scope", ["a|b|3"], None)


def test_the_tenant_is_part_of_the_key() -> None:
    source = Source("s", model=Two, message_id=field("line"), tenant=field("order"), fingerprint=Fingerprint("order"))

    assert hash_of(source, Two(order="north", line=3)) in key_hashes(source, "scope", ["3"], "north")
    assert hash_of(source, Two(order="north", line=3)) not in key_hashes(source, "scope", ["3"], None)


def test_a_time_in_the_id_is_read_from_its_part() -> None:
    source = Source("s", model=At, message_id=fields("order", "at"), occurred_at=field("at"), fingerprint=Fingerprint("order"))
    expected = hash_of(source, At(order="7", at=datetime(2026, 1, 31, 12, 0, 1, tzinfo=UTC)))

    assert key_hashes(source, "scope", ["7", "2026-01-31T12:00:01+00:00"], None) == [expected]
    assert key_hashes(source, "scope", ["7|2026-01-31T12:00:01+00:00"], None) == [expected]


def test_a_time_in_the_id_is_read_by_the_sources_function() -> None:
    def moment(order: str) -> datetime:
        return datetime.fromtimestamp(int(order.partition("-")[0]), UTC)

    source = Source("s", model=Two, message_id=field("order"), occurred_at=moment, fingerprint=Fingerprint("order"))

    assert key_hashes(source, "scope", ["1700000000-7"], None) == [hash_of(source, Two(order="1700000000-7", line=1))]
    with pytest.raises(IdNotUnderstood, match="'seven' cannot be an id of source 's'"):
        key_hashes(source, "scope", ["seven"], None)

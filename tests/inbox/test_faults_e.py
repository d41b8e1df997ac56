"""Faults of identity and fingerprint, and of the hostile input that reaches them. What needs a database is tested end to end elsewhere."""

import json
from collections.abc import Iterator
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.bound_fingerprint import BoundFingerprint
from consumer_idem.inbox.fingerprint import differing
from consumer_idem.inbox.key import Keys
from consumer_idem.inbox.source import Fingerprint, Reading, Unreadable, field, fields, header
from consumer_idem.outcome import Reason
from tests.inbox.payments import Payment, message, payment, read, refused, source


class Row(BaseModel):
    """A payload of texts, to be taken apart in every way."""

    id: str = "1"
    a: str
    b: str = ""
    c: str = ""


def row(*listed: str) -> Any:
    return source(Row, message_id=header("id"), fingerprint=Fingerprint(*listed))


def fingerprint(declared: Any, value: Any) -> bytes:
    return read(declared, message(value, [("id", b"1")])).fingerprint


# E1: the same key with another content


def test_e1_another_amount_under_the_same_id_is_another_fingerprint_and_is_named():
    declared = source()
    first, second = read(declared, message(payment())), read(declared, message(payment(amount="12.51")))

    assert first.key_hash == second.key_hash
    assert first.fingerprint != second.fingerprint
    under_the_same = declared.fingerprint_under(first.fingerprint_version, second.payload, message(None))
    assert under_the_same is not None
    assert under_the_same.differing(first.field_digests) == ("amount",)


def test_e1_every_field_that_differs_is_named_in_declared_order():
    declared = source()
    first, second = read(declared, message(payment())), read(declared, message(payment(currency="USD", account="bob")))

    assert differing(("account", "amount", "currency"), first.field_digests, second.field_digests) == ("account", "currency")


# E4: the fingerprint's rules change in a rolling deploy


def test_e4_each_build_can_compare_the_others_rows():
    old = source(fingerprint=Fingerprint("account", "amount"))
    new = source(fingerprint=Fingerprint("account", "amount", "note", version=2, previous=[Fingerprint("account", "amount")]))
    incoming = message(payment(note="x"))
    by_old, by_new = read(old, incoming), read(new, incoming)

    under_old = new.fingerprint_under(by_old.fingerprint_version, by_new.payload, incoming)
    assert under_old is not None
    assert under_old.fingerprint == by_old.fingerprint
    # The old build meets a row of a version that it cannot know: no fingerprint, so no false conflict.
    assert old.fingerprint_under(by_new.fingerprint_version, by_old.payload, incoming) is None
    assert by_old.key_hash == by_new.key_hash


def test_e4_other_rules_under_the_same_version_have_another_content():
    assert source(fingerprint=Fingerprint("account")).contents != source(fingerprint=Fingerprint("account", "amount")).contents


class TextAmount(BaseModel):
    payment_id: str
    account: str = "alice"
    amount: str
    currency: str = "EUR"


def test_e4_another_type_that_would_break_old_rows_has_another_content():
    as_text, as_number = source(TextAmount), source()

    assert read(as_text, message(payment())).fingerprint != read(as_number, message(payment())).fingerprint
    assert as_text.contents != as_number.contents


# E5: what JSON leaves open


class Open(BaseModel):
    amount: Decimal = Decimal(0)
    count: int = 0
    text: str = ""
    at: AwareDatetime | None = None


opened = source(Open, message_id=header("id"), fingerprint=Fingerprint("amount", "count", "text", "at"))

ONE_MEANING = [
    ['{"amount":1}', '{"amount":1.0}', '{"amount":1e0}', '{"amount":"1.00"}', '{"amount":10e-1}', '{ "amount" : 1.000 }'],
    ['{"amount":100}', '{"amount":1e2}', '{"amount":"1E+2"}', '{"amount":100.00}'],
    ['{"amount":-0}', '{"amount":-0.0}', '{"amount":0}', "{}"],
    ['{"amount":12345678901234567890.12}', '{"amount":"12345678901234567890.120"}', '{"amount":1.234567890123456789012e19}'],
    ['{"count":9007199254740993}', '{"count":9007199254740993.0}', '{"count":"9007199254740993"}'],
    ['{"text":"a/\u00e9"}', '{"text":"\\u0061\\/\\u00e9"}'],
    ['{"at":"2026-03-01T10:00:00Z"}', '{"at":"2026-03-01T12:00:00+02:00"}', '{"at":"2026-03-01T10:00:00.000Z"}', '{"at":1772359200}'],
    ['{"amount":1,"text":"a"}', '{"text":"a","amount":1}', '{"text":"a","amount":1,"unknown":{"x":[1.5]}}'],
]


@pytest.mark.parametrize("texts", ONE_MEANING)
def test_e5_one_meaning_is_one_fingerprint(texts):
    assert len({fingerprint(opened, text.encode()) for text in texts}) == 1


TWO_MEANINGS = [
    ('{"amount":12345678901234567890.12}', '{"amount":12345678901234567890.13}'),
    ('{"amount":0.1}', '{"amount":0.1000000000000000055}'),
    ('{"amount":9007199254740992}', '{"amount":9007199254740993}'),
    ('{"count":9007199254740992.0}', '{"count":9007199254740993.0}'),
    ('{"amount":1e-400}', '{"amount":0}'),
    ('{"text":"\\u00e9"}', '{"text":"e\\u0301"}'),
    ('{"text":"a"}', '{"text":"a "}'),
    ('{"text":"a"}', '{"text":"A"}'),
    ('{"text":""}', '{"text":"\\u0000"}'),
    ('{"at":"2026-03-01T10:00:00Z"}', '{"at":"2026-03-01T10:00:00+01:00"}'),
    ('{"at":"2026-03-01T10:00:00Z"}', '{"at":null}'),
]


@pytest.mark.parametrize(("one", "other"), TWO_MEANINGS)
def test_e5_two_meanings_are_two_fingerprints(one, other):
    assert fingerprint(opened, one.encode()) != fingerprint(opened, other.encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"amount":1,"amount":2}',
        '{"amount":1,"\\u0061mount":2}',
        '{"amount":NaN}',
        '{"amount":"NaN"}',
        '{"amount":Infinity}',
        '{"amount":1e400}',
        '{"at":"2026-03-01T10:00:00"}',
        '{"text":"\\ud800"}',
    ],
)
def test_e5_what_has_no_one_meaning_is_undecodable(text):
    assert refused(opened, message(text.encode(), [("id", b"1")])).reason is Reason.UNDECODABLE


def test_e5_a_float_is_refused_at_declaration():
    class Rate(BaseModel):
        rate: float

    with pytest.raises(DeclarationError, match="'rate': float is refused"):
        source(Rate, message_id=header("id"), fingerprint=Fingerprint("rate"))


# E6: what differs in every retry is not fingerprinted


class Traced(Payment):
    trace_id: str
    sent_at: AwareDatetime


def test_e6_trace_ids_and_send_times_make_no_conflict():
    declared = source(Traced)
    first, again = (
        read(declared, message(payment(trace_id=trace, sent_at=at), [("traceparent", trace.encode())]))
        for trace, at in (("t-1", "2026-03-01T10:00:00Z"), ("t-2", "2026-03-01T10:05:00Z"))
    )

    assert (first.key_hash, first.fingerprint) == (again.key_hash, again.fingerprint)


def test_e6_a_fingerprint_without_a_list_of_fields_cannot_be_declared():
    with pytest.raises(DeclarationError, match="at least one field"):
        Fingerprint()


# E7: what stands side by side must not run together

TIGHT = st.text(st.sampled_from("ab1:;s\0"), max_size=4)


@given(st.tuples(TIGHT, TIGHT, TIGHT), st.tuples(TIGHT, TIGHT, TIGHT))
def test_e7_fields_never_run_together(one, other):
    declared = row("a", "b", "c")
    values = [fingerprint(declared, dict(zip("abc", texts, strict=True))) for texts in (one, other)]

    assert (values[0] == values[1]) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [(("ab", "c"), ("a", "bc")), (("", "ab"), ("ab", "")), (("a", "1:b"), ("a1:b", "")), (("a\0b", ""), ("a", "b"))]
)
def test_e7_neither_fields_nor_ids_run_together(one, other):
    declared = source(Payment, message_id=fields("account", "payment_id"), fingerprint=Fingerprint("account", "payment_id"))
    texts = [read_two(declared, *pair) for pair in (one, other)]

    assert texts[0].fingerprint != texts[1].fingerprint
    assert texts[0].key_hash != texts[1].key_hash


def read_two(declared: Any, account: str, payment_id: str) -> Reading[Any]:
    # An id must not be empty, so both get a letter, which takes nothing from what is tried here.
    return read(declared, message(payment(account="x" + account, payment_id="x" + payment_id)))


# E8: short hashes collide


def test_e8_fingerprints_are_whole_and_decide_where_digests_collide():
    bound = BoundFingerprint(Fingerprint("a"), Row)
    one, other = next(colliding(bound))

    assert differing(("a",), one[1], other[1]) == ()
    assert one[0] != other[0]
    assert len(one[0]) == 32


def colliding(bound: BoundFingerprint) -> Iterator[tuple[tuple[bytes, bytes], tuple[bytes, bytes]]]:
    """Values whose digests of four bytes are the same: one pair in 2**32, so there are some among half a million."""
    seen: dict[bytes, tuple[bytes, bytes]] = {}
    for number in range(500_000):
        # Short numbers never share one: a CRC tells small differences apart for certain.
        taken = bound.take(Row(a=sha256(b"%d" % number).hexdigest()), message(None))
        first = seen.setdefault(taken[1], taken)
        if first is not taken:
            yield first, taken


def test_e8_a_key_hash_is_the_same_in_every_process():
    hashed = sha256(b"consumer_idem key 1\n" + b"13:apply-payment" + b"8:checkout" + b"0;" + b"3:p-1").digest()

    assert Keys("apply-payment", "checkout").hash(("p-1",)).bytes == b"\0" + hashed[:15]


# E10: several handlers, several tenants


def test_e10_handlers_tenants_and_sources_each_have_their_own_keys():
    incoming = message(payment(), [("tenant", b"acme")])
    other_tenant = message(payment(), [("tenant", b"globex")])
    declared, renamed = source(tenant=header("tenant")), source(name="refunds", tenant=header("tenant"))

    readings = [
        read(declared, incoming, "apply-payment"),
        read(declared, incoming, "send-receipt"),
        read(declared, other_tenant, "apply-payment"),
        read(renamed, incoming, "apply-payment"),
        read(source(), incoming, "apply-payment"),
    ]

    assert len({reading.key_hash for reading in readings}) == len(readings)
    assert len({reading.fingerprint for reading in readings}) == 1


# A19, A21, A22, B25: hostile input


def test_a19_a_null_value_is_a_tombstone_and_not_data():
    unreadable = refused(source(message_id=header("id")), message(None, [("id", b"p-1")]))

    assert (unreadable.reason, unreadable.message_id) == (Reason.TOMBSTONE, "p-1")


def test_a19_an_empty_value_is_not_a_tombstone():
    assert refused(source(), message(b"")).reason is Reason.UNDECODABLE


def test_a19_a_null_key_is_nothing_special():
    assert read(source(), message(payment(), key=None)).key_hash == read(source(), message(payment(), key=b"k")).key_hash


@pytest.mark.parametrize(
    "value",
    [b"\x00\x01\x02\xff", b"{", b'{"payment_id": "p\xff"}', b"[" * 100_000, b"\x1f\x8b\x08", json.dumps(payment()).encode("utf-16")],
)
def test_a21_bytes_that_are_no_json_are_undecodable(value):
    unreadable = refused(source(), message(value))

    assert (unreadable.reason, unreadable.key_hash) == (Reason.UNDECODABLE, None)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ([], "is missing"),
        ([("ID", b"1")], "is missing"),
        ([("id", b"1"), ("id", b"1")], "is there 2 times"),
        ([("id", b"1"), ("id", b"2")], "is there 2 times"),
        ([("id", b"1"), ("id", None)], "is there 2 times"),
        ([("id", None)], "is null"),
        ([("id", b"")], "is empty"),
        ([("id", b"  ")], "is empty"),
        ([("id", b"\xff\xfe")], "is not UTF-8"),
        ([("id", b"\xed\xa0\x80")], "is not UTF-8"),
    ],
)
def test_a22_an_id_header_counts_only_where_it_is_the_one(headers, says):
    unreadable = refused(source(message_id=header("id")), message(payment(), headers))

    assert (unreadable.reason, unreadable.error) == (Reason.UNIDENTIFIABLE, f"header id {says}")
    assert (unreadable.message_id, unreadable.key_hash) == (None, None)


@pytest.mark.parametrize("value", [{"payment_id": ""}, {"payment_id": None}, {}])
def test_a22_a_missing_id_field_is_never_hashed_as_null(value):
    class Optional(BaseModel):
        payment_id: str | None = None
        account: str = ""

    unreadable = refused(source(Optional, fingerprint=Fingerprint("account")), message(value))

    assert (unreadable.reason, unreadable.key_hash) == (Reason.UNIDENTIFIABLE, None)


@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "x" * 9_000, "ab" * 500_000, "\U0010ffff" * 3_000, "\\", "'; DROP TABLE inbox; --", "\u202e", "\x7f\x1b[31m"]
)
def test_b25_any_id_becomes_a_key_and_a_text_that_postgresql_takes(text):
    reading = read(source(), message(payment(payment_id=text)))

    assert "\0" not in reading.message_id
    assert len(reading.message_id.encode("utf-8")) <= 800
    assert reading.key_hash != read(source(), message(payment(payment_id=text + "x"))).key_hash


def test_b25_lone_surrogates_of_a_function_become_a_key():
    one, other = (read(source(message_id=lambda *_, text=text: text), message(payment())) for text in ("\ud800", "\udfff"))

    assert one.message_id == "\\ud800"
    assert one.key_hash != other.key_hash


@pytest.mark.parametrize("declared", [source(), source(message_id=field("account"))])
@pytest.mark.parametrize("depth", [10, 199, 250, 50_000])
def test_b25_deep_values_are_read_or_refused(declared, depth):
    value = json.dumps(payment())[:-1].encode() + b',"x":' + b"[" * depth + b"]" * depth + b"}"

    assert isinstance(declared.read(message(value), "s"), Reading | Unreadable)

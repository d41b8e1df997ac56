"""A source reads what is good, says why it cannot read the rest, and never raises."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NotRequired
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, NaiveDatetime, field_validator
from typing_extensions import TypedDict

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.source import Fingerprint, Reading, Source, Unreadable, event_type, field, fields, header
from consumer_idem.message import Message
from consumer_idem.outcome import Reason
from tests.inbox.payments import Payment, message, payment, read, refused, source


def test_a_payment_becomes_a_reading():
    reading = read(source(), message(payment()))

    assert reading.payload == Payment(payment_id="p-1", account="alice", amount=Decimal("12.50"))
    assert (reading.source, reading.message_id, reading.tenant) == ("checkout", "p-1", None)
    assert (reading.fingerprint_version, len(reading.fingerprint), len(reading.field_digests)) == (1, 32, 12)
    assert (reading.occurred_at, reading.kept) == (None, None)


def test_a_reader_reads_as_the_source_does():
    declared, incoming = source(), message(payment())

    assert declared.reader("apply-payment")(incoming) == declared.read(incoming, "apply-payment")


# Where the message id is


@pytest.mark.parametrize(
    ("message_id", "expected"),
    [
        (field("payment_id"), "p-1"),
        (fields("payment_id", "account"), "p-1|alice"),
        (field("account"), "alice"),
        (header("request-id"), "r-9"),
        (lambda payload, incoming: f"{payload.payment_id}@{incoming.topic}", "p-1@payments"),
        (lambda payload, _: (payload.payment_id, 3), "p-1|3"),
    ],
)
def test_the_id_is_found_where_the_source_says(message_id, expected):
    assert read(source(message_id=message_id), message(payment(), [("request-id", b"r-9")])).message_id == expected


def test_the_cloud_events_id_counts_within_its_source():
    declared = source(message_id=header("ce_id"))

    def from_upstream(name: bytes) -> Reading[Any]:
        return read(declared, message(payment(), [("ce_source", name), ("ce_id", b"17")]))

    assert from_upstream(b"/shop/a").message_id == "/shop/a|17"
    assert from_upstream(b"/shop/a").key_hash == from_upstream(b"/shop/a").key_hash != from_upstream(b"/shop/b").key_hash


def test_a_lone_ce_id_is_an_id():
    assert read(source(message_id=header("ce_id")), message(payment(), [("ce_id", b"17")])).message_id == "17"


@pytest.mark.parametrize("headers", [[("ce_source", b"a"), ("ce_source", b"a"), ("ce_id", b"1")], [("ce_source", b""), ("ce_id", b"1")]])
def test_an_unclear_cloud_events_source_is_no_identity(headers):
    assert refused(source(message_id=header("ce_id")), message(payment(), headers)).reason is Reason.UNIDENTIFIABLE


class Line(BaseModel):
    number: int


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    key: UUID = Field(alias="orderKey")
    line: Line | None = None
    labels: dict[str, str] | None = None
    amount: Decimal = Decimal(0)


def test_nested_fields_and_aliases_make_an_id():
    declared = source(Order, message_id=fields("key", "line.number", "labels.shop"), fingerprint=Fingerprint("amount"))
    key = uuid4()

    assert read(declared, message({"orderKey": str(key), "line": {"number": 3}, "labels": {"shop": "s1"}})).message_id == f"{key}|3|s1"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        # The model gives null for a line that is absent, so that the two are one.
        ({"labels": {"shop": "s"}}, "field line.number is null"),
        ({"line": None, "labels": {"shop": "s"}}, "field line.number is null"),
        ({"line": {"number": 3}, "labels": {}}, "field labels.shop is missing"),
    ],
)
def test_an_id_with_a_part_missing_is_none(value, says):
    declared = source(Order, message_id=fields("line.number", "labels.shop"), fingerprint=Fingerprint("amount"))
    unreadable = refused(declared, message({"orderKey": str(uuid4())} | value))

    assert (unreadable.reason, unreadable.error) == (Reason.UNIDENTIFIABLE, says)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "is null"),
        ("", "is empty"),
        (" \t", "is empty"),
        (("a", ""), "is empty"),
        ((), "is a tuple"),
        (True, "is a bool"),
        (1.5, "is a float"),
        (b"\xff", "is not UTF-8"),
        pytest.param(10**5000, "too many digits", id="long"),
        (datetime(2026, 1, 1), "without a zone"),  # noqa: DTZ001 - what is to be refused
    ],
)
def test_what_a_function_returns_must_be_an_id(returned, says):
    unreadable = refused(source(message_id=lambda *_: returned), message(payment()))

    assert unreadable.reason is Reason.UNIDENTIFIABLE
    assert says in unreadable.error


def test_a_function_that_raises_is_named_and_not_quoted():
    def secret(payload: Payment, _: Message) -> str:
        raise KeyError(payload.account)

    assert refused(source(message_id=secret), message(payment())).error == "the message_id function raised KeyError"


def test_out_of_memory_is_no_property_of_the_message():
    def exhausted(*_: object) -> str:
        raise MemoryError

    with pytest.raises(MemoryError):
        source(message_id=exhausted).read(message(payment()), "apply-payment")


# Tenants, times, types


def test_a_tenant_parts_the_keys():
    declared = source(tenant=header("tenant"))

    acme, globex = (read(declared, message(payment(), [("tenant", name)])) for name in (b"acme", b"globex"))

    assert (acme.tenant, globex.tenant) == ("acme", "globex")
    assert acme.key_hash != globex.key_hash
    assert acme.key_hash != read(source(), message(payment())).key_hash


def test_a_message_without_its_tenant_has_no_key():
    unreadable = refused(source(tenant=header("tenant")), message(payment()))

    assert (unreadable.reason, unreadable.error) == (Reason.UNIDENTIFIABLE, "header tenant is missing")


class Reading_(BaseModel):  # noqa: N801 - not the library's Reading
    meter: str
    taken_at: AwareDatetime
    value: Decimal


def metered(**options: Any) -> Source[Any]:
    return source(Reading_, **({"message_id": fields("meter", "taken_at"), "fingerprint": Fingerprint("value")} | options))


def test_a_time_in_the_id_goes_in_front_of_the_hash():
    declared = metered(occurred_at=field("taken_at"))
    reading = read(declared, message({"meter": "m1", "taken_at": "1970-01-02T00:01:59+00:00", "value": "1"}))

    assert reading.occurred_at == datetime(1970, 1, 2, 0, 1, 59, tzinfo=UTC)
    assert reading.key_hash.bytes[:5] == b"\x01" + (24 * 60 + 1).to_bytes(4, "big")
    assert (declared.key_scheme, metered().key_scheme) == (1, 0)


def test_one_instant_in_two_zones_is_one_id():
    declared = metered(occurred_at=field("taken_at"))
    first, second = (
        read(declared, message({"meter": "m1", "taken_at": at, "value": "1"}))
        for at in ("2026-03-01T10:00:00+02:00", "2026-03-01T08:00:00Z")
    )

    assert (first.key_hash, first.message_id) == (second.key_hash, second.message_id)


def test_a_time_may_be_a_function_of_the_id():
    declared = source(occurred_at=lambda text: date.fromisoformat(text[:10]))

    assert read(declared, message(payment(payment_id="2026-03-01/17"))).occurred_at == datetime(2026, 3, 1, tzinfo=UTC)
    assert refused(declared, message(payment(payment_id="later"))).error == "the occurred_at function raised ValueError"


def test_a_time_in_a_cloud_events_id_is_found_in_the_id_alone():
    declared = source(message_id=header("ce_id"), occurred_at=lambda text: datetime.fromtimestamp(int(text), UTC))

    assert read(declared, message(payment(), [("ce_source", b"/a"), ("ce_id", b"60")])).key_hash.bytes[4] == 1


@pytest.mark.parametrize(("returned", "says"), [(datetime(2026, 1, 1), "without a zone"), ("2026", "is a str")])  # noqa: DTZ001
def test_a_time_function_must_return_an_instant(returned, says):
    assert says in refused(source(occurred_at=lambda _: returned), message(payment())).error


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("ce_type", b"paid")], "paid"),
        ([], None),
        ([("ce_type", b"paid"), ("ce_type", b"paid")], None),
        ([("ce_type", b"\xff")], None),
        ([("ce_type", None)], None),
        ([("ce_type", b"")], None),
    ],
)
def test_the_event_type_is_the_one_that_is_clear(headers, expected):
    assert event_type(message(payment(), headers)) == expected


# Tombstones and other formats


def test_a_tombstone_can_be_a_payload():
    declared = source(
        on_tombstone=lambda incoming: {"payment_id": f"cancel-{incoming.key.decode()}", "account": "alice", "amount": 0},
    )

    assert read(declared, message(None, key=b"p-1")).message_id == "cancel-p-1"


def test_what_on_tombstone_makes_is_validated():
    declared = source(on_tombstone=lambda _: {"payment_id": "p-1"})

    assert refused(declared, message(None)).error == "account: Field required; amount: Field required"


def test_other_formats_are_decoded_by_the_users_function():
    declared = source(decode=lambda incoming: dict(pair.split("=") for pair in incoming.value.decode().split("&")))

    assert read(declared, message(b"payment_id=p-1&account=alice&amount=1")).payload.amount == 1
    assert refused(declared, message(b"garbage")).error == "the decode function raised ValueError"
    assert refused(declared, message(None)).reason is Reason.TOMBSTONE


@dataclass
class PlainPayment:
    payment_id: str
    account: str
    amount: Decimal


class DictPayment(TypedDict):
    payment_id: str
    account: str
    amount: NotRequired[Decimal]


@pytest.mark.parametrize("model", [PlainPayment, DictPayment, Payment])
def test_models_dataclasses_and_typed_dicts_are_one(model):
    declared = source(model, fingerprint=Fingerprint("account", "amount"))

    assert read(declared, message(payment()))[1:] == read(source(fingerprint=Fingerprint("account", "amount")), message(payment()))[1:]


class Deferred(BaseModel):
    model_config = ConfigDict(defer_build=True)
    payment_id: str


def test_a_model_that_is_built_late_is_built_at_declaration():
    assert read(source(Deferred, fingerprint=Fingerprint("payment_id")), message(payment())).message_id == "p-1"


# What an unreadable message tells


def test_the_key_of_an_unreadable_message_is_told_where_headers_have_it():
    declared = source(message_id=header("request-id"), tenant=header("tenant"))
    headers = [("request-id", b"r-1"), ("tenant", b"acme")]

    unreadable, reading = refused(declared, message(b"{", headers)), read(declared, message(payment(), headers))

    assert unreadable.reason is Reason.UNDECODABLE
    assert (unreadable.message_id, unreadable.tenant, unreadable.key_hash) == ("r-1", "acme", reading.key_hash)


def test_the_key_is_told_where_only_the_fingerprint_fails():
    class Loose(BaseModel):
        payment_id: str
        data: Any

    declared = source(Loose, fingerprint=Fingerprint("data"))
    unreadable = refused(declared, message({"payment_id": "p-1", "data": [1.5]}))

    assert (unreadable.reason, unreadable.message_id) == (Reason.UNDECODABLE, "p-1")
    assert unreadable.error == "fingerprint field data is a float, which is not in allow_floats"


@pytest.mark.parametrize(
    "value", [b"{", b"\xff\xfe", b'{"amount":"hunter2","payment_id":"hunter2","account":{}}', b'["hunter2"]', b'"hunter2']
)
def test_errors_do_not_quote_the_payload(value):
    assert "hunter2" not in refused(source(), message(value)).error


def test_errors_of_the_users_validators_are_not_quoted():
    class Checked(Payment):
        @field_validator("account")
        @classmethod
        def known(cls, account: str) -> str:
            raise ValueError(f"unknown account {account}")

    assert refused(source(Checked), message(payment(account="hunter2"))).error == "account: value_error"


def test_a_validator_that_breaks_is_the_messages_fault():
    class Broken(Payment):
        @field_validator("account")
        @classmethod
        def known(cls, account: str) -> str:
            raise LookupError(account)

    unreadable = refused(source(Broken), message(payment()))

    assert (unreadable.reason, unreadable.error) == (Reason.UNDECODABLE, "reading it raised LookupError")


def test_many_errors_are_cut():
    assert refused(source(dict_of_numbers()), message({"payment_id": "1", "n": dict.fromkeys("abcdefgh", "x")})).error.endswith(
        "; and 3 more"
    )


def test_an_error_is_text_that_postgresql_takes():
    unreadable = refused(source(dict_of_numbers()), message({"payment_id": "1", "n": {"a\0\x1b": "x"}}))

    assert unreadable.error.startswith("n.a\\x00\\x1b: Input should be a valid integer")


def test_a_long_error_is_cut():
    class Chosen(Payment):
        account: Literal[tuple(f"choice-{number}" for number in range(300))]  # type: ignore[valid-type]

    assert len(refused(source(Chosen), message(payment())).error) == 1000


def dict_of_numbers() -> type[BaseModel]:
    class Numbers(BaseModel):
        payment_id: str
        account: str = ""
        amount: int = 0
        currency: str = ""
        n: dict[str, int]

    return Numbers


# It never raises

HEADERS = st.lists(
    st.tuples(st.sampled_from(["ce_id", "ce_source", "tenant", "x", "\ud800\x00"]), st.none() | st.binary(max_size=12)), max_size=5
)
NAMES = st.sampled_from(["payment_id", "account", "amount", "currency", "note", "x"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inside, max_size=4),
    max_leaves=8,
)
GARBAGE = (
    st.none()
    | st.binary()
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(NAMES, JSON_VALUES).map(lambda value: json.dumps(payment() | value).encode())
    | st.dictionaries(NAMES, JSON_VALUES).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
)
SOURCES = [
    source(),
    source(message_id=header("ce_id"), tenant=header("tenant"), fingerprint=Fingerprint(header("x"), "note", keep=("note", "header(x)"))),
    source(message_id=lambda payload, incoming: (payload.note, incoming.key)),
    source(occurred_at=lambda text: datetime.fromisoformat(text)),
    source(on_tombstone=lambda incoming: incoming.key, decode=lambda incoming: json.loads(incoming.value)),
]


@given(st.sampled_from(SOURCES), GARBAGE, HEADERS, st.none() | st.binary(max_size=12))
def test_no_message_makes_a_source_raise(declared, value, headers, key):
    reading = declared.read(message(value, headers, key=key), "apply-payment")

    assert isinstance(reading, Reading | Unreadable)
    texts = [reading.message_id, reading.tenant, *([reading.error] if isinstance(reading, Unreadable) else [])]
    assert all(text is None or _is_postgresql_text(text) for text in texts)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_no_flipped_byte_makes_a_source_raise(garbage, at):
    whole = json.dumps(payment()).encode()

    assert isinstance(source().read(message(whole[:at] + garbage + whole[at + len(garbage) :]), "s"), Reading | Unreadable)


def _is_postgresql_text(text: str) -> bool:
    return "\0" not in text and text.encode("utf-8").decode("utf-8") == text


# What cannot be declared


class Typed(BaseModel):
    id: str
    made_up: UUID = Field(default_factory=uuid4)
    defaulted: str = "none"
    ratio: float = 0.5
    flag: bool = True
    amount: Decimal = Decimal(0)
    naive: NaiveDatetime | None = None
    moment: datetime | None = None
    when: AwareDatetime
    line: Line | None = None
    lines: list[Line] = []
    labels: Mapping[str, Any] = {}
    pattern: complex = 0j
    camel: str = Field(default="", alias="camelCase")


def typed(message_id: Any = field("id"), fingerprint: Any = Fingerprint("id"), **options: Any) -> Source[Any]:  # noqa: B008 - immutable
    return Source("typed", model=Typed, message_id=message_id, fingerprint=fingerprint, **options)


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: typed(message_id=None), "no message_id"),
        (lambda: typed(fingerprint=None), "no fingerprint"),
        (lambda: typed(message_id="id"), "message_id='id' is neither header()"),
        (lambda: typed(message_id=field("idd")), "has no field 'idd'. Did you mean 'id'?"),
        (lambda: typed(message_id=field("camelCase")), "Did you mean 'camel'? Fields are named as in Python"),
        (lambda: typed(message_id=field("line.nr")), "Line has no field 'nr'"),
        (lambda: typed(message_id=field("id.x")), "str has no fields"),
        (lambda: typed(message_id=field("made_up")), "'made_up' has a default"),
        (lambda: typed(message_id=field("defaulted")), "'defaulted' has a default"),
        (lambda: typed(message_id=field("amount")), "'amount' has a default"),
        (lambda: typed(message_id=field("lines")), "'lines' has a default"),
        (lambda: typed(tenant=field("nobody")), "has no field 'nobody'"),
        (lambda: typed(occurred_at=field("when")), "one of the fields in message_id"),
        (lambda: typed(message_id=header("x"), occurred_at=field("when")), "one of the fields in message_id"),
        (lambda: typed(message_id=fields("id", "when"), occurred_at=field("id")), "'id' is a str. It must be a datetime"),
        (lambda: typed(occurred_at=header("time")), "one of the fields in message_id"),
        (lambda: typed(message_id=_coroutine), "message_id is a coroutine function"),
        (lambda: typed(decode=_coroutine), "decode is a coroutine function"),
        (lambda: typed(on_tombstone="ignore"), "on_tombstone='ignore'"),
        (lambda: Source(" ", model=Typed), "Source name ' '"),
        (lambda: Source("a\0", model=Typed), "Source name"),
        (lambda: Source("x", model=complex, message_id=header("x"), fingerprint=Fingerprint("id")), "complex has no fields"),  # type: ignore[arg-type]
        (lambda: Source("x", model=_Unknown, message_id=header("x"), fingerprint=Fingerprint("id")), "cannot be used by pydantic"),
        (lambda: fields(), "names no field"),
        (lambda: fields("a", "a"), "names 'a' twice"),
        (lambda: field("a..b"), "is not the name of a field"),
        (lambda: header("a\0"), "is not the name of a header"),
        (lambda: header(""), "is not the name of a header"),
    ],
)
def test_a_wrong_declaration_is_refused_with_the_field_named(declare, says):
    with pytest.raises(DeclarationError) as refusal:
        declare()

    assert says in str(refusal.value)


class _Number(BaseModel):
    ratio: float
    flag: bool
    amount: Decimal
    line: Line


@pytest.mark.parametrize("name", ["ratio", "flag", "amount", "line"])
def test_only_what_has_a_stable_text_can_be_an_id(name):
    with pytest.raises(DeclarationError, match=f"message_id field '{name}' is a .*An id is a str, int, UUID"):
        source(_Number, message_id=field(name), fingerprint=Fingerprint("amount"))


class _Unknown(BaseModel):
    later: "Nowhere"  # type: ignore[name-defined]  # noqa: F821 - what is to be refused


async def _coroutine(*_: Any) -> str:
    return "id"


def test_a_source_shows_no_secret():
    assert "hunter2" not in repr(source(fingerprint=Fingerprint("account", pepper="hunter2")))


def test_reading_a_message_again_gives_the_same():
    declared, incoming = metered(occurred_at=field("taken_at")), message({"meter": "m", "taken_at": "2026-01-01T00:00:00Z", "value": "1"})

    assert read(declared, incoming) == read(declared, incoming)
    assert read(declared, incoming).occurred_at - datetime(2026, 1, 1, tzinfo=UTC) == timedelta(0)

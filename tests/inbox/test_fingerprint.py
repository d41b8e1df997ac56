"""A fingerprint sees every change to a listed field, and nothing else."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, EmailStr, Field, HttpUrl, NaiveDatetime, PastDatetime, RootModel, Secret, SecretStr
from pydantic import dataclasses as pydantic_dataclasses
from typing_extensions import TypeAliasType, TypedDict

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.canonical import WITHOUT_FLOATS
from consumer_idem.inbox.kinds import kind_of
from consumer_idem.inbox.shape import resolve
from consumer_idem.inbox.source import Fingerprint, Reading, Source, fields, header
from consumer_idem.inbox.source import field as in_field
from consumer_idem.inbox.walk import walk
from tests.inbox.payments import Payment, message, payment, read, refused, source


class Currency(StrEnum):
    EUR = "EUR"
    USD = "USD"


class Line(BaseModel):
    article: str
    quantity: int


class Customer(BaseModel):
    id: str
    country: str | None = None


class Order(BaseModel):
    id: str = "o"
    amount: Decimal
    currency: Currency
    ordered_at: AwareDatetime
    lines: list[Line]
    tags: set[str]
    labels: dict[str, int]
    customer: Customer | None = None
    note: str | None = None


LISTED = ("amount", "currency", "ordered_at", "lines", "tags", "labels", "customer.id", "note")
orders = source(Order, message_id=header("id"), fingerprint=Fingerprint(*LISTED))

SHORT = st.text(st.sampled_from('aé\\"/\n😀'), max_size=3)
ORDERS = st.fixed_dictionaries(
    {
        "amount": st.decimals(-1000, 1000, places=3) | st.integers(0, 2).map(Decimal),
        "currency": st.sampled_from(list(Currency)),
        "ordered_at": st.datetimes(datetime(2000, 1, 1), datetime(2001, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - Hypothesis adds it
        "lines": st.lists(st.fixed_dictionaries({"article": SHORT, "quantity": st.integers(0, 3)}), max_size=2),
        "tags": st.sets(SHORT, max_size=3),
        "labels": st.dictionaries(SHORT, st.integers(0, 2), max_size=2),
        "customer": st.none() | st.fixed_dictionaries({"id": SHORT, "country": st.none() | SHORT}),
        "note": st.none() | SHORT,
        "id": SHORT,
    }
)


@st.composite
def spellings(draw: Callable[..., Any], order: Mapping[str, Any]) -> bytes:
    """One of the many JSON texts that mean `order`."""
    offset = timezone(timedelta(minutes=draw(st.integers(-700, 700))))
    values = dict(order) | {
        "ordered_at": order["ordered_at"].astimezone(offset).isoformat(),
        "tags": draw(st.permutations(sorted(order["tags"]) * draw(st.integers(1, 2)))),
        "labels": dict(draw(st.permutations(list(order["labels"].items())))),
        "amount": Raw(draw(amounts(order["amount"]))),
    }
    if values["note"] is None and draw(st.booleans()):
        del values["note"]
    names = draw(st.permutations(list(values)))
    return _json({name: values[name] for name in names}, draw(st.booleans()), draw(st.sampled_from(["", " ", "\n\t"]))).encode()


@st.composite
def amounts(draw: Callable[..., Any], amount: Decimal) -> str:
    shift = draw(st.integers(-3, 3))
    digits = format(amount.scaleb(shift), "f")
    zeros = "0" * draw(st.integers(0, 20))
    text = f"{digits}{zeros if '.' in digits else '.0' + zeros}e{-shift}"
    return draw(st.sampled_from([text, f'"{text}"', f'"{amount}"', format(amount, "f")]))


class Raw(str):
    """JSON text that stands for itself."""

    __slots__ = ()


def _json(value: Any, escapes: bool, gap: str) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name, ensure_ascii=escapes)}{gap}:{gap}{_json(inside, escapes, gap)}" for name, inside in value.items())
        return f"{{{gap}{f'{gap},{gap}'.join(pairs)}{gap}}}"
    if isinstance(value, list):
        return f"[{gap}{f'{gap},{gap}'.join(_json(inside, escapes, gap) for inside in value)}{gap}]"
    return json.dumps(value, ensure_ascii=escapes)


def taken(text: bytes) -> Reading[Any]:
    return read(orders, message(text, [("id", b"1")]))


@given(ORDERS, st.data())
def test_equal_meaning_gives_an_equal_fingerprint(order, data):
    one, other = taken(data.draw(spellings(order))), taken(data.draw(spellings(order)))

    assert (one.fingerprint, one.field_digests) == (other.fingerprint, other.field_digests)


@given(ORDERS, ORDERS, st.sets(st.sampled_from(LISTED)), st.data())
def test_any_change_to_a_listed_field_gives_another_fingerprint_and_names_it(order, donor, changed, data):
    other = dict(order) | {name: donor[name] for name in order if any(path.split(".")[0] == name for path in changed)}
    one, two = (taken(data.draw(spellings(values))) for values in (order, other))
    different = tuple(path for path in LISTED if _meaning(order, path) != _meaning(other, path))

    assert (one.fingerprint == two.fingerprint) == (not different)
    print_of_two = orders.fingerprint_under(1, two.payload, message(b"", [("id", b"1")]))
    assert print_of_two is not None
    assert print_of_two.differing(one.field_digests) == different


def _meaning(order: Mapping[str, Any], path: str) -> Any:
    return walk(order, tuple(path.split(".")))


def test_a_field_that_is_not_listed_does_not_count():
    reading = read(source(), message(payment()))
    changed = source().fingerprint_under(1, reading.payload.model_copy(update={"note": "again", "payment_id": "p-2"}), message(b""))

    assert changed is not None
    assert (changed.fingerprint, changed.field_digests) == (reading.fingerprint, reading.field_digests)


# Where nothing is


class Sparse(TypedDict, total=False):
    note: str | None
    inner: "Inner | None"


class Inner(TypedDict, total=False):
    a: int | None


@pytest.mark.parametrize("path", ["note", "inner.a"])
def test_absent_and_null_are_two_things_where_the_model_gives_no_default(path):
    declared = source(Sparse, message_id=header("id"), fingerprint=Fingerprint(path))
    shapes = [{}, {"note": None}, {"inner": None}, {"inner": {}}, {"inner": {"a": None}}, {"inner": {"a": 1}}, {"note": ""}]
    expected = {"note": 3, "inner.a": 5}[path]

    assert len({read(declared, message(shape, [("id", b"1")])).fingerprint for shape in shapes}) == expected


def test_absent_and_the_models_default_are_one():
    assert read(source(), message(payment())).fingerprint == read(source(), message(payment(currency="EUR"))).fingerprint


class MadeUp(BaseModel):
    token: str = Field(default_factory=lambda: str(uuid4()))
    customer: Customer = Field(default_factory=lambda: Customer(id=str(uuid4())))
    tags: list[str] = Field(default_factory=list)


@pytest.mark.parametrize("path", ["token", "customer", "customer.id", "tags"])
def test_a_default_made_by_a_function_makes_no_conflict(path):
    declared = source(MadeUp, message_id=header("id"), fingerprint=Fingerprint(path))
    headers = [("id", b"1")]

    assert read(declared, message({}, headers)).fingerprint == read(declared, message({}, headers)).fingerprint
    sent = {"token": "x", "customer": {"id": "x"}, "tags": ["x"]}
    assert read(declared, message(sent, headers)).fingerprint != read(declared, message({}, headers)).fingerprint


def test_headers_can_be_listed():
    declared = source(fingerprint=Fingerprint("account", header("v")))

    def digests(*values: bytes | None) -> bytes:
        return read(declared, message(payment(), [("v", value) for value in values])).field_digests

    headers: list[tuple[bytes | None, ...]] = [(), (None,), (b"",), (b"1",), (b"\xff",), (b"1", b"1"), (b"1", b"2"), (b"2", b"1")]
    assert len({digests(*values) for values in headers}) == len(headers)


# Versions


def test_a_row_of_an_older_version_is_compared_under_it():
    old = source(fingerprint=Fingerprint("account"))
    new = source(fingerprint=Fingerprint("account", "amount", version=2, previous=[Fingerprint("account")]))
    stored, incoming = read(old, message(payment())), message(payment(account="bob"))
    reading = read(new, incoming)

    assert (new.fingerprint_version, reading.fingerprint_version) == (2, 2)
    under_one = new.fingerprint_under(1, reading.payload, incoming)
    assert under_one is not None
    assert under_one.differing(stored.field_digests) == ("account",)
    assert under_one == old.fingerprint_under(1, reading.payload, incoming)


def test_a_version_that_the_source_does_not_know_gives_none():
    assert source().fingerprint_under(2, Payment(payment_id="p", account="a", amount=Decimal(1)), message(None)) is None


class Loose(BaseModel):
    payment_id: str
    old: Any = None
    new: str = ""


def test_an_older_version_that_cannot_be_taken_any_more_gives_none():
    declared = source(Loose, fingerprint=Fingerprint("new", version=2, previous=[Fingerprint("old")]))
    incoming = message({"payment_id": "p", "old": [1.5]})

    assert declared.fingerprint_under(1, read(declared, incoming).payload, incoming) is None


def test_the_content_says_fields_kinds_and_form():
    declared = source(Order, message_id=header("id"), fingerprint=Fingerprint(*LISTED, header("v")))

    assert declared.contents == {
        1: "form 1: amount number, currency text, ordered_at instant, lines [{article text, quantity number}], tags set<text>, "
        "labels map<text, number>, customer.id text, note text, header(v) header"
    }


def test_another_content_is_told_apart_under_the_same_version():
    contents = [
        source(fingerprint=fingerprint).contents[1]
        for fingerprint in (
            Fingerprint("account"),
            Fingerprint("amount"),
            Fingerprint("account", "amount"),
            Fingerprint("amount", "account"),
            Fingerprint(header("account")),
            Fingerprint("account", pepper="one"),
            Fingerprint("account", pepper="two"),
        )
    ]

    assert len(set(contents)) == len(contents)
    assert not any("one" in content or "two" in content for content in contents)


def test_a_typed_dict_is_known_by_its_names():
    with pytest.raises(DeclarationError, match=r"'inner\.b': Inner has no field 'b'"):
        source(Sparse, message_id=header("id"), fingerprint=Fingerprint("inner.b"))


# Peppers and kept values


def test_a_pepper_changes_every_hash():
    plain, peppered, other, secret = (
        read(source(fingerprint=Fingerprint("account", pepper=pepper)), message(payment())) for pepper in (None, "p", b"q", SecretStr("p"))
    )

    assert len({plain.fingerprint, peppered.fingerprint, other.fingerprint}) == 3
    assert len({plain.field_digests, peppered.field_digests, other.field_digests}) == 3
    assert peppered.fingerprint == secret.fingerprint
    assert len(peppered.fingerprint) == 32


def test_values_are_kept_only_where_that_is_asked_for():
    declared = source(fingerprint=Fingerprint("account", "amount", header("v"), keep=("amount", "header(v)")))

    assert read(declared, message(payment(), [("v", b"1\xff")])).kept == {"amount": "12.50", "header(v)": "1\\xff"}
    assert read(declared, message(payment())).kept == {"amount": "12.50"}
    assert read(declared, message(payment(), [("v", b"1"), ("v", None)])).kept == {"amount": "12.50", "header(v)": ["1", None]}


def test_kept_values_are_json():
    declared = source(Order, message_id=header("id"), fingerprint=Fingerprint(*LISTED, keep=LISTED))
    text = b'{"amount": 1.50, "currency": "EUR", "ordered_at": "2026-01-01T00:00:00Z", "lines": [{"article": "a", "quantity": 1}], "tags": ["a"], "labels": {}, "customer": {"id": "c"}}'  # fmt: skip  # noqa: E501
    kept = read(declared, message(text, [("id", b"1")])).kept

    assert json.loads(json.dumps(kept)) == {
        "amount": "1.5", "currency": "EUR", "ordered_at": "2026-01-01T00:00:00Z", "lines": [{"article": "a", "quantity": 1}],
        "tags": ["a"], "labels": {}, "customer.id": "c", "note": None,
    }  # fmt: skip


# Types


class Level(Enum):
    LOW = 1
    NAME = "high"


class Tree(BaseModel):
    name: str
    inside: list["Tree"] = []


T = TypeVar("T")


class Envelope(BaseModel, Generic[T]):
    data: T


class Step(NamedTuple):
    at: int
    name: str


class Names(RootModel[list[str]]):
    pass


@dataclass
class Weight:
    grams: int
    of: str = ""


Cents = NewType("Cents", int)
Alias = TypeAliasType("Alias", dict[str, Decimal | None])
Listed = TypeAliasType("Listed", list[T], type_params=(T,))


class Everything(BaseModel):
    union: int | str | None = None
    level: Level = Level.LOW
    literal: Literal["a", 1, None] = None
    tree: Tree | None = None
    envelope: Envelope[Line] | None = None
    step: Step | None = None
    names: Names | None = None
    weight: Weight | None = None
    cents: Cents = Cents(0)
    alias: Alias = {}
    listed: Listed[int] = []
    constrained: Annotated[Decimal, Field(gt=0)] | None = None
    secret: SecretStr | None = None
    secrets: Secret[list[int]] | None = None
    anything: Any = None
    past: PastDatetime | None = None
    pairs: tuple[int, str] | None = None
    many: tuple[int, ...] = ()
    bare: list = []  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("union", "number|text"),
        ("level", "number|text"),
        ("literal", "number|text"),
        ("tree", "{inside [^2], name text}"),
        ("tree.name", "text"),
        ("envelope.data.article", "text"),
        ("step", "[number, text]"),
        ("names", "[text]"),
        ("weight", "{grams number, of text}"),
        ("weight.grams", "number"),
        ("cents", "number"),
        ("alias", "map<text, number>"),
        ("alias.a", "number"),
        ("listed", "[number]"),
        ("constrained", "number"),
        ("secret", "text"),
        ("secrets", "[number]"),
        ("anything", "any"),
        ("past", "instant"),
        ("pairs", "[number, text]"),
        ("many", "[number]"),
        ("bare", "[any]"),
    ],
)
def test_each_declared_type_has_its_kind(path, kind):
    declared = source(Everything, message_id=header("id"), fingerprint=Fingerprint(path))

    assert declared.contents == {1: f"form 1: {path} {kind}"}


@pytest.mark.parametrize("annotation", [EmailStr, IPv4Address, HttpUrl, PurePosixPath])
def test_what_has_a_text_is_text(annotation):
    assert kind_of(annotation, floats=False) == "text"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements are new in Python 3.12")
def test_a_type_statement_is_what_it_stands_for():
    names: dict[str, Any] = {}
    exec("type Amounts[T] = list[T] | None", names)

    assert kind_of(names["Amounts"][int], floats=False) == "[number]"


def test_a_model_inside_itself_is_fingerprinted_whole():
    declared = source(Everything, message_id=header("id"), fingerprint=Fingerprint("tree"))
    trees = [{"name": "a"}, {"name": "a", "inside": [{"name": "b"}]}, {"name": "a", "inside": [{"name": "b", "inside": [{"name": "c"}]}]}]

    assert len({read(declared, message({"tree": tree}, [("id", b"1")])).fingerprint for tree in trees}) == 3


def test_a_union_of_models_can_be_the_model():
    class Refund(BaseModel):
        kind: Literal["refund"]
        payment_id: str
        amount: Decimal

    class Charge(BaseModel):
        kind: Literal["charge"]
        payment_id: str
        amount: Decimal

    declared = source(Annotated[Refund | Charge, Field(discriminator="kind")], fingerprint=Fingerprint("kind", "amount"))
    refund, charge = (read(declared, message({"kind": kind, "payment_id": "1", "amount": 1})) for kind in ("refund", "charge"))

    assert refund.message_id == charge.message_id == "1"
    assert refund.fingerprint != charge.fingerprint


# What cannot be declared


@pydantic_dataclasses.dataclass
class Stamped:
    at: str = field(default_factory=lambda: str(uuid4()))


class Odd(BaseModel, arbitrary_types_allowed=True):
    id: str
    ratio: float = 0.5
    ratios: list[float] = []
    naive: NaiveDatetime | None = None
    custom: object.__class__ | None = None
    generator: "Sequence[complex]" = ()
    nothing: None = None
    stamped: Stamped = Stamped()
    level: Literal["a"] | float = "a"
    camel: str = Field(default="", alias="camelCase")


def odd(*listed: Any, **options: Any) -> Source[Any]:
    return source(Odd, message_id=in_field("id"), fingerprint=Fingerprint(*listed, **options))


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: odd(), "at least one field"),
        (lambda: odd("id", "id"), "names 'id' twice"),
        (lambda: odd("id", in_field("id")), "names 'id' twice"),
        (lambda: odd("id."), "'id.' is not a dotted path"),
        (lambda: odd(fields("id", "camel")), "one by one"),
        (lambda: odd("camelCase"), "Did you mean 'camel'?"),
        (lambda: odd("idd"), "'idd': Odd has no field 'idd'. Did you mean 'id'?"),
        (lambda: odd("ratio"), "'ratio': float is refused"),
        (lambda: odd("ratios"), "'ratios': float is refused"),
        (lambda: odd("level"), "'level': float is refused"),
        (lambda: odd("naive"), "'naive': a datetime without a zone"),
        (lambda: odd("custom"), "'custom': type has no canonical form"),
        (lambda: odd("generator"), "'generator': complex has no canonical form"),
        (lambda: odd("nothing.x"), "always null"),
        (lambda: odd("stamped"), "'stamped': Stamped.at gets a default from a function"),
        (lambda: odd("stamped.at"), "'stamped.at' gets a default from a function"),
        (lambda: odd("id", version=0), "version 0"),
        (lambda: odd("id", version=32768), "version 32768"),
        (lambda: odd("id", version=True), "version True"),
        (lambda: odd("id", previous=[Fingerprint("id")]), "version 1 is there twice"),
        (lambda: odd("id", version=3, previous=[Fingerprint("id"), Fingerprint("camel")]), "version 1 is there twice"),
        (lambda: odd("id", version=3, previous=[Fingerprint("id", version=2, previous=[Fingerprint("id")])]), "previous= itself"),
        (lambda: odd("id", version=2, previous=[Fingerprint("gone")]), "'gone'"),
        (lambda: odd("id", keep="id"), "keep='id' is one string"),
        (lambda: odd("id", keep=("camel",)), "keep= names 'camel'"),
        (lambda: odd("id", allow_floats=("ratio",)), "allow_floats= names 'ratio'"),
        (lambda: odd("id", pepper=""), "pepper= is empty"),
    ],
)
def test_a_wrong_fingerprint_is_refused_with_the_field_named(declare, says):
    with pytest.raises(DeclarationError) as refusal:
        declare()

    assert says in str(refusal.value)


def test_a_type_that_cannot_be_found_is_named():
    @dataclass
    class Here:
        later: "Elsewhere"  # type: ignore[name-defined]  # noqa: F821 - what is to be refused

    with pytest.raises(DeclarationError, match="Elsewhere"):
        resolve(Here, "later")


def test_floats_are_allowed_by_name():
    declared = odd("ratio", "ratios", allow_floats=("ratio", "ratios"))
    one, two, three = (
        read(declared, message(text)) for text in (b'{"id":"1","ratio":1.0}', b'{"id":"1","ratio":1}', b'{"id":"1","ratio":1.5}')
    )

    assert one.fingerprint == two.fingerprint != three.fingerprint
    assert "ratio is not a finite number" in refused(declared, message(b'{"id":"1","ratio":"nan"}')).error


# The canonical form never changes


class Golden(BaseModel):
    id: str
    number: int | None = None
    at: AwareDatetime | None = None
    amount: Decimal = Decimal(0)
    currency: Currency = Currency.EUR
    tags: set[str] = set()
    lines: list[Line] = []
    labels: dict[str, int | None] = {}
    note: str | None = None
    customer: Customer | None = None
    ratio: float = 0.0
    flag: bool = False
    data: bytes = b""


GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text("utf-8"))


@pytest.mark.parametrize("vector", GOLDEN["vectors"], ids=[vector["name"] for vector in GOLDEN["vectors"]])
def test_golden_vectors_hold(vector):
    declared = source(
        Golden,
        vector["source"],
        message_id=fields(*vector["message_id_fields"]),
        tenant=header("tenant") if vector["tenant"] else None,
        occurred_at=in_field("at") if vector["timed"] else None,
        fingerprint=Fingerprint(*vector["fields"], pepper=vector["pepper"], allow_floats=tuple({"ratio"} & set(vector["fields"]))),
    )
    headers = [("tenant", vector["tenant"].encode())] if vector["tenant"] else []
    reading = read(declared, message(vector["json"].encode(), headers), vector["scope"])

    forms = [WITHOUT_FLOATS.encode(walk(reading.payload, tuple(path.split(".")))).hex() for path in vector["fields"] if path != "ratio"]
    assert forms == vector["canonical"]
    assert reading.fingerprint.hex() == vector["fingerprint"]
    assert reading.field_digests.hex() == vector["field_digests"]
    assert (reading.message_id, str(reading.key_hash)) == (vector["message_id"], vector["key_hash"])
    assert declared.contents[1] == vector["content"]

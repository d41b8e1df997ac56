"""The work: 300-byte payment requests, one in ten of them sent twice, and what must stand in the database in the end.

The effect of a message is one insert, one balance update and one outbox record. Contestants that are not ours keep the keys
they have seen in `processed` and their records in `outbox_record`.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from pydantic import BaseModel

from consumer_idem.inbox.source import Fingerprint, Source, field

ACCOUNTS = 1000
SIZE = 300
OUT = "payments.applied"

TABLES = """
CREATE TABLE account (id text PRIMARY KEY, balance numeric NOT NULL);
CREATE TABLE payment (id text NOT NULL, account text NOT NULL, amount numeric NOT NULL);
CREATE TABLE processed (id text PRIMARY KEY, fingerprint bytea, processed_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE outbox_record (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, key bytea, value bytea,
                            created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE dead_letter (value bytea, error text);
"""
FILL_ACCOUNTS = f"INSERT INTO account SELECT 'account-' || lpad(n::text, 4, '0'), 0 FROM generate_series(0, {ACCOUNTS - 1}) AS n"

INSERT_PAYMENT = "INSERT INTO payment (id, account, amount) VALUES ($1, $2, $3)"
UPDATE_BALANCE = "UPDATE account SET balance = balance + $2 WHERE id = $1"
INSERT_PROCESSED = "INSERT INTO processed (id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id"
INSERT_RECORD = "INSERT INTO outbox_record (topic, key, value) VALUES ($1, $2, $3)"
INSERT_DEAD_LETTER = "INSERT INTO dead_letter (value, error) VALUES ($1, $2)"

POISON = "poison"


class PaymentRequested(BaseModel):
    """What upstream asks for. A payment whose `note` says so makes the handler raise."""

    payment_id: str
    account: str
    amount: Decimal
    currency: str
    note: str | None = None


class Poisoned(Exception):
    """What a handler raises for a poisoned message."""


def checkout() -> Source[PaymentRequested]:
    """The source as a user declares it."""
    return Source(
        "checkout", model=PaymentRequested, message_id=field("payment_id"), fingerprint=Fingerprint("account", "amount", "currency")
    )


def record_value(payment: PaymentRequested) -> dict[str, str]:
    """What the outbox record says."""
    return {"payment_id": payment.payment_id, "account": payment.account, "amount": str(payment.amount)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How many messages, and of what kind. The same numbers make the same messages."""

    messages: int
    duplicates: float = 0.1
    poison: float = 0.0
    seed: int = 7

    def payments(self) -> Iterator[PaymentRequested]:
        """Return the messages in order; a duplicate repeats one of the last thousand."""
        dice = random.Random(self.seed)
        recent: list[PaymentRequested] = []
        for _ in range(self.messages):
            if recent and dice.random() < self.duplicates:
                yield dice.choice(recent)
                continue
            payment = PaymentRequested(
                payment_id=str(UUID(int=dice.getrandbits(128), version=4)),
                account=f"account-{dice.randrange(ACCOUNTS):04d}",
                amount=Decimal(dice.randrange(1, 100_000)) / 100,
                currency="EUR",
                note=POISON if dice.random() < self.poison else None,
            )
            recent.append(payment)
            if len(recent) > 1000:
                recent.pop(0)
            yield payment

    def expected(self) -> "Expected":
        """Return what must stand in the database once everything is consumed."""
        once = {payment.payment_id: payment for payment in self.payments()}
        applied = [payment for payment in once.values() if payment.note != POISON]
        balances: Counter[str] = Counter()
        for payment in applied:
            balances[payment.account] += payment.amount  # type: ignore[assignment]  # a Counter adds whatever can be added
        return Expected(len(applied), len(once) - len(applied), dict(balances))


@dataclass(frozen=True, slots=True)
class Expected:
    """Payments that took effect, messages that never can, and what the accounts hold then."""

    applied: int
    poisoned: int
    balances: dict[str, Decimal]


def encoded(payment: PaymentRequested) -> bytes:
    """Return the message's value: JSON of 300 bytes."""
    body = payment.model_dump_json(exclude_none=True)
    filler = SIZE - len(body) - len(',"reference":""')
    return (body[:-1] + f',"reference":"{"x" * filler}"}}').encode()


def values(payments: Sequence[PaymentRequested]) -> list[tuple[str, bytes]]:
    """Return key and value of each message; the key is the account, as upstream would choose it."""
    return [(payment.account, encoded(payment)) for payment in payments]

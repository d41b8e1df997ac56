"""What the demo sends, made from a seed, and what must come of it. Pure.

Every number that is checked at the end is known before the first message is sent, in whatever order the partitions are read:
* an account belongs to one partition, and there are many, so that payments seldom wait for each other;
* a conflict follows its first copy in the same partition, so that it is always the conflict that loses;
* whoever must be refused has no money at all, and everybody else has enough even for a payment that is taken twice.
"""

import json
import random
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from consumer_idem.demo.names import PARTITIONS

SMALLEST = 100
"""Fewer messages could not hold one of each kind."""

_DUPLICATES, _CONFLICTS, _GARBAGE, _REFUSED = 0.15, 0.01, 0.01, 0.02
_PAYMENTS_PER_ACCOUNT = 2


class Payment(NamedTuple):
    """One distinct payment."""

    id: str
    account: str
    amount: Decimal
    refused: bool


class Request(NamedTuple):
    """One message."""

    partition: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Workload:
    """The messages in the order in which they are sent, and what they are."""

    requests: list[Request]
    payments: list[Payment]
    duplicates: int
    conflicts: dict[str, bytes]
    """The id of each conflict, and its value."""
    garbage: list[bytes]
    balances: dict[str, Decimal]
    """What is on each account before the first payment."""

    @cached_property
    def applied(self) -> dict[str, Payment]:
        """The payments that must be applied, by id."""
        return {payment.id: payment for payment in self.payments if not payment.refused}

    @cached_property
    def refused(self) -> set[str]:
        """The ids of those that must be refused."""
        return {payment.id for payment in self.payments if payment.refused}

    def balances_after(self) -> dict[str, Decimal]:
        """Return what must be on each account in the end."""
        left = dict(self.balances)
        for payment in self.applied.values():
            left[payment.account] -= payment.amount
        return left


def make_workload(messages: int, seed: int) -> Workload:
    """Return `messages` messages; the same for the same seed."""
    return _Maker(messages, random.Random(seed)).make()


class _Maker:
    def __init__(self, messages: int, dice: random.Random) -> None:
        self._dice = dice
        self._refused = round(messages * _REFUSED)
        self._duplicates = round(messages * _DUPLICATES)
        self._conflicts = round(messages * _CONFLICTS)
        self._garbage = round(messages * _GARBAGE)
        self._distinct = messages - self._duplicates - self._conflicts - self._garbage
        self._placed: list[tuple[float, Request]] = []

    def make(self) -> Workload:
        payments = self._payments()
        for place, payment in enumerate(payments):
            self._place(place, _partition(payment.account), payment.account, _value(payment))
        self._repeat(payments)
        conflicts = self._contradict(payments)
        garbage = self._spoil()
        self._placed.sort(key=lambda placed: placed[0])
        requests = [request for _, request in self._placed]
        return Workload(requests, payments, self._duplicates, conflicts, garbage, _balances(payments))

    def _payments(self) -> list[Payment]:
        accounts = max(PARTITIONS, self._distinct // _PAYMENTS_PER_ACCOUNT)
        refused = set(self._dice.sample(range(self._distinct), self._refused))
        payments = []
        for number in range(self._distinct):
            amount = Decimal(self._dice.randrange(100, 10_000)) / 100
            account = f"poor-{self._dice.randrange(PARTITIONS)}" if number in refused else f"account-{self._dice.randrange(accounts)}"
            payments.append(Payment(f"pay-{number:06}", account, amount, number in refused))
        return payments

    def _repeat(self, payments: list[Payment]) -> None:
        """Send copies again: some at once and some much later, every second one to another partition."""
        for number in range(self._duplicates):
            first = self._dice.randrange(len(payments))
            payment = payments[first]
            home = _partition(payment.account)
            elsewhere = (home + self._dice.randrange(1, PARTITIONS)) % PARTITIONS
            self._place(self._behind(first), elsewhere if number % 2 else home, payment.account, _value(payment))

    def _contradict(self, payments: list[Payment]) -> dict[str, bytes]:
        conflicts = {}
        for first in self._dice.sample(range(len(payments)), self._conflicts):
            payment = payments[first]
            value = _value(payment._replace(amount=payment.amount + 1))
            self._place(self._behind(first), _partition(payment.account), payment.account, value)
            conflicts[payment.id] = value
        return conflicts

    def _spoil(self) -> list[bytes]:
        """Send what is cut off, what is no UTF-8, and what is no payment."""
        kinds = (b'{"payment_id": "garbage-%d", "amo', b"\xff\xfe garbage-%d", b'{"payment_id": "garbage-%d", "amount": "a lot"}')
        garbage = [kinds[number % len(kinds)] % number for number in range(self._garbage)]
        for value in garbage:
            place = self._dice.uniform(0, self._distinct)
            self._place(place, self._dice.randrange(PARTITIONS), "garbage", value)
        return garbage

    def _behind(self, first: int) -> float:
        return first + (0.5 if self._dice.random() < 0.5 else self._dice.uniform(0.5, self._distinct - first))

    def _place(self, place: float, partition: int, key: str, value: bytes) -> None:
        self._placed.append((place, Request(partition, key.encode(), value)))


def _partition(account: str) -> int:
    return int(account.rpartition("-")[2]) % PARTITIONS


def _value(payment: Payment) -> bytes:
    fields = {"payment_id": payment.id, "account": payment.account, "amount": str(payment.amount), "currency": "EUR"}
    return json.dumps(fields).encode()


def _balances(payments: list[Payment]) -> dict[str, Decimal]:
    spent: dict[str, Decimal] = defaultdict(Decimal)
    for payment in payments:
        spent[payment.account] += payment.amount
    return {account: Decimal(0) if account.startswith("poor") else 3 * amount + 1000 for account, amount in spent.items()}

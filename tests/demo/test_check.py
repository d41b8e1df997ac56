"""The demo's judge: nothing passes that is lost, doubled or wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from consumer_idem.demo.check import Effect, Entry, Found, Record, judge
from consumer_idem.demo.report import Report
from consumer_idem.demo.workload import make_workload

WORKLOAD = make_workload(1000, 1)
PAID = next(iter(WORKLOAD.applied.values()))
REFUSED = min(WORKLOAD.refused)


def as_it_should_be() -> Found:
    conflicts = [Entry("conflict", id, ("amount",), value) for id, value in WORKLOAD.conflicts.items()]
    return Found(
        effects=[Effect(payment.id, payment.account, payment.amount) for payment in WORKLOAD.applied.values()],
        refusals=list(WORKLOAD.refused),
        balances=WORKLOAD.balances_after(),
        quarantine=conflicts + [Entry("undecodable", None, (), value) for value in WORKLOAD.garbage],
        records=frozenset(Record(f"record of {id}", id) for id in WORKLOAD.applied),
    )


def test_what_is_as_it_should_be_passes() -> None:
    verdict = judge(WORKLOAD, as_it_should_be())

    assert (verdict.lost, verdict.doubled, verdict.wrong, verdict.problems) == (0, 0, 0, [])


def change(**change: Callable[[Any], Any]) -> Callable[[Found], Found]:
    return lambda found: replace(found, **{name: function(getattr(found, name)) for name, function in change.items()})


def moved(balances: dict[str, Any]) -> dict[str, Any]:
    return {**balances, PAID.account: balances[PAID.account] - PAID.amount}


FAULTS = {
    "a payment is not applied": (change(effects=lambda rows: rows[1:]), (1, 0, 1)),
    "a payment is applied twice": (change(effects=lambda rows: [*rows, rows[0]]), (0, 1, 0)),
    "a payment is applied three times": (change(effects=lambda rows: [*rows, rows[0], rows[0]]), (0, 2, 0)),
    "a conflict is applied as well": (change(effects=lambda rows: [*rows, rows[0]._replace(amount=rows[0].amount + 1)]), (0, 1, 1)),
    "a conflict is applied instead": (change(effects=lambda rows: [rows[0]._replace(amount=rows[0].amount + 1), *rows[1:]]), (0, 0, 1)),
    "who cannot pay pays": (change(effects=lambda rows: [*rows, Effect(REFUSED, "poor-0", PAID.amount)]), (1, 0, 1)),
    "somebody pays who did not ask": (change(effects=lambda rows: [*rows, Effect("nobody", "account-1", PAID.amount)]), (1, 0, 1)),
    "a refusal is missing": (change(refusals=lambda ids: ids[1:]), (1, 0, 0)),
    "a refusal is there twice": (change(refusals=lambda ids: [*ids, ids[0]]), (0, 1, 0)),
    "a payment is applied and refused": (change(refusals=lambda ids: [*ids, PAID.id]), (0, 0, 1)),
    "money moves without a payment": (change(balances=moved), (0, 0, 1)),
    "an account is gone": (change(balances=lambda found: {k: v for k, v in found.items() if k != PAID.account}), (0, 0, 1)),
    "a conflict is not in quarantine": (change(quarantine=lambda entries: entries[1:]), (1, 0, 0)),
    "garbage is not in quarantine": (change(quarantine=lambda entries: entries[:-1]), (1, 0, 0)),
    "an entry has another reason": (
        change(quarantine=lambda entries: [*entries[:-1], entries[-1]._replace(reason="tombstone")]),
        (1, 0, 1),
    ),
    "a conflict names another field": (
        change(quarantine=lambda entries: [entries[0]._replace(fields=("account",)), *entries[1:]]),
        (1, 0, 1),
    ),
    "an entry is there twice": (change(quarantine=lambda entries: [*entries, entries[0]]), (0, 1, 0)),
    "a payment is quarantined": (change(quarantine=lambda entries: [*entries, Entry("crashed", PAID.id, (), b"")]), (0, 0, 1)),
    "a record is not published": (change(records=lambda found: found - {Record(f"record of {PAID.id}", PAID.id)}), (1, 0, 0)),
    "a payment is published as two": (change(records=lambda found: found | {Record("another", PAID.id)}), (0, 1, 0)),
    "a refused payment is published": (change(records=lambda found: found | {Record("another", REFUSED)}), (0, 0, 1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str) -> None:
    spoil, expected = FAULTS[fault]

    verdict = judge(WORKLOAD, spoil(as_it_should_be()))

    assert (verdict.lost, verdict.doubled, verdict.wrong) == expected
    assert verdict.problems
    assert not Report(workload=WORKLOAD, found=as_it_should_be(), verdict=verdict, killed_workers=1, seconds=1.0).kept

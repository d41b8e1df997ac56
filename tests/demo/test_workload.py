"""The demo's messages: the shares, the seed, and the order that makes the check exact."""

import json
from collections import Counter
from decimal import Decimal

import pytest

from consumer_idem.demo.names import PARTITIONS
from consumer_idem.demo.payments import checkout
from consumer_idem.demo.workload import Request, Workload, make_workload
from consumer_idem.inbox.reading import Unreadable
from consumer_idem.message import Message

SIZES = [100, 1000, 5000]


@pytest.fixture(scope="module", params=[(size, seed) for size in SIZES for seed in (1, 2, 3)], ids=str)
def workload(request: pytest.FixtureRequest) -> Workload:
    return make_workload(*request.param)


def copies(workload: Workload) -> dict[bytes, list[Request]]:
    found: dict[bytes, list[Request]] = {}
    for request in workload.requests:
        found.setdefault(request.value, []).append(request)
    return found


def read(request: Request) -> object:
    return checkout.read(Message(topic="t", partition=request.partition, offset=0, value=request.value), "s")


def test_the_shares_are_as_announced(workload: Workload) -> None:
    total = len(workload.requests)
    repeated = sum(len(same) - 1 for same in copies(workload).values())

    assert repeated == workload.duplicates == round(0.15 * total)
    assert len(workload.conflicts) == len(workload.garbage) == round(0.01 * total)
    assert len(workload.refused) == round(0.02 * total)
    assert len(workload.payments) == total - repeated - 2 * round(0.01 * total)
    assert {request.partition for request in workload.requests} == set(range(PARTITIONS))


def test_every_second_duplicate_is_on_another_partition(workload: Workload) -> None:
    home = {value: next(iter(same)).partition for value, same in copies(workload).items()}
    elsewhere = sum(request.partition != home[request.value] for request in workload.requests)

    assert elsewhere == workload.duplicates // 2


def test_a_conflict_follows_its_first_copy_in_the_same_partition(workload: Workload) -> None:
    seen: dict[int, set[str]] = {partition: set() for partition in range(PARTITIONS)}
    for request in workload.requests:
        if request.value in workload.conflicts.values():
            payment = json.loads(request.value)
            assert payment["payment_id"] in seen[request.partition]
            assert Decimal(payment["amount"]) != workload.applied.get(payment["payment_id"], payment["amount"])
        elif request.value not in workload.garbage:
            seen[request.partition].add(json.loads(request.value)["payment_id"])


def test_garbage_cannot_be_read_and_all_else_can(workload: Workload) -> None:
    unreadable = [request.value for request in workload.requests if isinstance(read(request), Unreadable)]

    assert sorted(unreadable) == sorted(workload.garbage)
    assert len(set(workload.garbage)) == len(workload.garbage)


def test_who_is_refused_has_nothing_and_nobody_else_runs_short(workload: Workload) -> None:
    wanted: Counter[str] = Counter()
    for payment in workload.payments:
        assert payment.refused == (workload.balances[payment.account] == 0)
        if not payment.refused:
            wanted[payment.account] += payment.amount  # type: ignore[assignment]  # a Counter of Decimals counts as well

    assert all(workload.balances[account] > 2 * spent for account, spent in wanted.items())
    assert sum(workload.balances.values()) - sum(workload.balances_after().values()) == sum(wanted.values())


def test_the_seed_decides() -> None:
    assert make_workload(500, 7).requests == make_workload(500, 7).requests
    assert make_workload(500, 7).requests != make_workload(500, 8).requests

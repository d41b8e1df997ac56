"""How many messages share the next transaction: few where one has failed, more with each that succeeds."""

import json
from typing import Any

from consumer_idem.consumer.retry import Plan
from consumer_idem.message import Message
from tests.shop import PaymentRequested, checkout, insert, open_shop, payment


def sizes(plan: Plan, left: int) -> list[int]:
    """Settle `left` messages without a failure; return how many each transaction took."""
    found = []
    while left:
        found.append(plan.size(left))
        plan.settled(found[-1])
        left -= found[-1]
    return found


def test_all_share_a_transaction_as_long_as_none_fails() -> None:
    assert sizes(Plan(), 5000) == [5000]


def test_behind_a_message_that_failed_transactions_grow_from_what_stood_before_it() -> None:
    plan = Plan()
    plan.isolate(100)

    assert sizes(plan, 1000) == [100, 1, 100, 200, 400, 199]


def test_they_never_begin_smaller_than_pays_off() -> None:
    plan = Plan()
    plan.isolate(0)

    assert sizes(plan, 200) == [1, 32, 64, 103]


def test_halves_in_which_one_failed_are_not_followed_by_all_at_once() -> None:
    plan = Plan()
    plan.halve(500)

    assert sizes(plan, 1000) == [250, 250, 500]


async def test_what_stands_behind_a_failure_is_not_read_again_with_every_failure(dsn: str) -> None:
    """Read to the end after each of ten failures, that would be six times each."""
    reads: list[int] = []

    def decode(message: Message) -> Any:
        reads.append(message.offset)
        return json.loads(message.value or b"")

    async def handler(request: PaymentRequested, tx: Any) -> None:
        await insert(request, tx)
        if request.note == "bad":
            raise ValueError("bad")

    async with open_shop(dsn, handler, source=checkout(decode=decode)) as shop:
        lane = await shop.lane()
        await lane.process(*(payment(offset, note="bad" if offset % 40 == 39 else None) for offset in range(400)))

        assert len(await shop.payments()) == 390
        assert len(reads) < 4 * 400

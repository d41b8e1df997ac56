"""The seal: fenced workers, a database that went back in time, and few round trips."""

import pytest

from consumer_idem.errors import DatabaseRewound, Fenced, RetryLater
from consumer_idem.outcome import Applied, Retry, Skipped
from tests.planted import planted
from tests.proxied import Turns, through
from tests.shop import insert, insert_later, open_shop, payment


async def test_a3_a_worker_whose_partition_was_taken_over_changes_nothing(dsn):
    async with open_shop(dsn) as zombie, open_shop(dsn) as successor:
        old = await zombie.lane()
        new = await successor.lane()

        with pytest.raises(Fenced):
            await old.process(payment(0, "late"))
        assert await zombie.payments() == []
        assert await new.process(payment(0)) == [Applied()]
        assert await successor.rows("SELECT count(*) FROM idem.inbox") == [1]


async def set_back(shop, offset):
    """Put progress, inbox and effects back to what they were at `offset`, as a promoted standby that missed commits does."""
    await shop.rows("UPDATE idem.progress SET next_offset = $1", offset)
    await shop.rows('DELETE FROM idem.inbox WHERE "offset" >= $1', offset)
    await shop.rows("DELETE FROM payment WHERE substr(id, 2)::int >= $1", offset)


async def rewound_lane_notices(dsn):
    async with open_shop(dsn) as shop:
        lane = await shop.lane()
        await lane.process(*(payment(offset) for offset in range(10)))
        await set_back(shop, 4)

        with pytest.raises(DatabaseRewound):
            await lane.process(payment(10))
        again = await shop.lane()
        assert again.seal.watermark == 4
        await again.process(*(payment(offset) for offset in range(4, 11)))
        assert await shop.payments() == sorted(f"p{offset}" for offset in range(11))


async def test_a14_a_database_that_went_back_is_noticed_and_everything_is_applied_again(dsn):
    await rewound_lane_notices(dsn)


async def test_planted_a_seal_without_lower_bound_is_caught(dsn):
    with planted("inbox", "seal", "next_offset >= $6::bigint", "$6::bigint IS NOT NULL"), pytest.raises(pytest.fail.Exception):
        await rewound_lane_notices(dsn)


async def test_a_rewind_between_two_transactions_of_one_turn_is_noticed(dsn):
    async def handler(request, tx):
        await insert(request, tx)
        if request.payment_id == "p5" and not went_back:
            raise ValueError("run alone")

    went_back = []
    async with open_shop(dsn, handler) as shop:
        lane = await shop.lane()
        settle = shop.app.runtime()

        async def set_back_once(*args):
            if not went_back:
                went_back.append(1)
                await set_back(shop, 2)

        processor = await settle.open()
        count = processor._count

        async def counting(*args, **kwargs):
            await set_back_once()
            return await count(*args, **kwargs)

        processor._count = counting
        with pytest.raises(DatabaseRewound):
            await lane.process(*(payment(offset) for offset in range(10)))
        assert await shop.payments() == ["p0", "p1"]


async def retried_message_is_applied_later(dsn):
    waiting = [1]

    async def handler(request, tx):
        if request.payment_id == "b" and waiting:
            waiting.clear()
            raise RetryLater
        await insert_later(request, tx)

    async with open_shop(dsn, handler) as shop:
        lane = await shop.lane()
        outcomes = await lane.process(payment(0, "a"), payment(1, "b"), payment(2, "c"))
        assert isinstance(outcomes[-1], Retry)
        await lane.process(payment(1, "b"), payment(2, "c"))
        assert await shop.payments() == ["a", "b", "c"]


async def test_what_was_claimed_and_then_retried_or_not_reached_is_applied_later(dsn):
    await retried_message_is_applied_later(dsn)


async def test_planted_a_claim_that_stays_is_caught(dsn):
    with planted("inbox", "settle", "WHERE key_hash = ANY ($2::uuid[])", "WHERE false AND key_hash = ANY ($2::uuid[])"):
        with pytest.raises(AssertionError):
            await retried_message_is_applied_later(dsn)


@pytest.mark.parametrize("size", [1, 10, 500])
async def test_a_batch_of_applied_and_skipped_messages_needs_at_most_eight_round_trips(dsn, size):
    async def handler(request, tx):
        tx.publish("out", key=request.account, value={"id": request.payment_id})

    turns = Turns()
    proxy, address = through(dsn, turns)
    async with proxy, open_shop(address, handler) as shop:
        lane = await shop.lane()

        def batch(first):
            fresh = [payment(first + n) for n in range(size)]
            return [*fresh, *(payment(first + size + n, f"p{first + n}") for n in range(size)), payment(first + 2 * size, "p0")]

        await lane.process(*batch(0))
        before = turns.count
        outcomes = await lane.process(*batch(5000))

        assert outcomes == [Applied()] * size + [Skipped()] * (size + 1)
        assert turns.count - before <= 8
        print(f"round trips for {len(outcomes)} messages: {turns.count - before}")

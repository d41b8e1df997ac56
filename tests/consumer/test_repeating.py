"""A lane whose last messages were mostly duplicates, as in a replay, looks for more of them before it claims anything."""

from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from consumer_idem.consumer.processor import Course
from consumer_idem.consumer.seal import PlainSeal
from consumer_idem.errors import RetryLater
from consumer_idem.inbox.fingerprint import Fingerprint
from consumer_idem.outcome import Applied, Quarantined, Reason, Rejected, Skipped, settled_count
from consumer_idem.testing.lost import LostCommit
from tests.proxied import through
from tests.shop import checkout, insert, open_shop, payment

COPIES = 'SELECT "offset" FROM idem.duplicate ORDER BY 1'


async def refusing(request, tx):
    """Refuses what asks to be refused."""
    if request.note == "refuse":
        raise Rejected("limit", {"most": 10})
    await insert(request, tx)


@asynccontextmanager
async def repeating(dsn, handler=refusing, seen=(), *, via=None, **options):
    """A shop and a lane that has settled payments r0 to r3 and those of `seen`, and then met r0 to r3 again. It goes on at offset 100."""
    async with open_shop(via or dsn, handler, **options) as shop:
        shop.dsn = dsn
        lane = await shop.lane()
        first = [payment(place, f"r{place}") for place in range(4)]
        await lane.process(*first, *seen)
        await lane.process(*(payment(90 + place, f"r{place}") for place in range(4)))
        assert lane.course.repeating
        yield shop, lane


async def test_copies_are_skipped_and_recorded_and_what_is_fresh_among_them_is_applied(dsn):
    async with repeating(dsn) as (shop, lane):
        outcomes = await lane.process(payment(100, "r0"), payment(101, "new"), payment(102, "r1"), payment(103, "new"), payment(104, "r1"))

        assert outcomes == [Skipped(), Applied(), Skipped(), Skipped(), Skipped()]
        assert await shop.payments() == ["new", "r0", "r1", "r2", "r3"]
        assert await shop.rows(COPIES) == [90, 91, 92, 93, 100, 102, 103, 104]


async def test_the_same_delivery_again_leaves_no_trace(dsn):
    async with repeating(dsn) as (shop, lane):
        lane.seal.watermark = 0

        assert await lane.process(payment(0, "r0"), payment(1, "r1")) == [Skipped()] * 2
        assert await shop.rows(COPIES) == [90, 91, 92, 93]


async def test_copies_alone_are_noted_once_each_and_none_that_the_progress_had_passed(dsn):
    """A lane that starts behind its progress meets the copies again that it has noted then."""
    async with repeating(dsn) as (shop, lane):
        lane.seal.passed = 101
        outcomes = await lane.process(payment(100, "r0"), payment(101, "r1"), payment(102, "r1"), payment(103, "r2"))

        assert outcomes == [Skipped()] * 4
        assert await shop.rows(COPIES) == [90, 91, 92, 93, 101, 102, 103]


async def test_copies_behind_a_retry_are_noted_once_when_they_are_settled(dsn):
    """Noted while they are looked for, they would be noted once more with each retry."""
    tries = []

    async def handler(request, tx):
        if request.payment_id == "later" and len(tries) < 3:
            tries.append(request)
            raise RetryLater(timedelta(milliseconds=1))
        await insert(request, tx)

    async with repeating(dsn, handler) as (shop, lane):
        messages = [payment(100, "r0"), payment(101, "later"), payment(102, "r1"), payment(103, "r2")]
        while messages:
            lane.course.repeating = True
            messages = messages[settled_count(await lane.process(*messages)) :]

        assert len(tries) == 3
        assert await shop.rows(COPIES) == [90, 91, 92, 93, 100, 102, 103]


@pytest.mark.parametrize("place", [0, 1])
async def test_e1_the_same_id_with_another_amount_conflicts_in_a_replay_too(dsn, place):
    async with repeating(dsn) as (shop, lane):
        pair = [payment(100, "r0"), payment(101, "r1")]
        pair[place] = payment(100 + place, f"r{place}", amount=99)
        outcomes = await lane.process(*pair, payment(102, "r2"))

        assert outcomes[place] == Quarantined(Reason.CONFLICT, outcomes[place].error, ("amount",))
        assert outcomes[1 - place] == outcomes[2] == Skipped()
        assert await shop.rows('SELECT "offset", fields FROM idem.quarantine') == [(100 + place, ["amount"])]


async def test_a_repeat_of_what_was_refused_gets_the_same_refusal(dsn):
    async with repeating(dsn, seen=[payment(4, "too much", note="refuse")]) as (_, lane):
        outcomes = await lane.process(payment(100, "r0"), payment(101, "too much", note="refuse"))

        assert outcomes == [Skipped(), Skipped(Rejected("limit", {"most": 10}))]


async def test_two_tenants_with_one_id_are_two_messages_in_a_replay_too(dsn):
    source = checkout(tenant=lambda request, message: request.note or "one")
    async with repeating(dsn, source=source) as (_, lane):
        outcomes = await lane.process(payment(100, "r0"), payment(101, "r1", note="other"))

        assert outcomes == [Skipped(), Applied()]


async def test_a_copy_under_an_older_fingerprint_is_compared_under_that_one(dsn):
    async with repeating(dsn) as (shop, _):
        pass
    newer = Fingerprint("account", "amount", "note", version=2, previous=[Fingerprint("account", "amount")])
    async with open_shop(dsn, source=checkout(fingerprint=newer)) as shop:
        lane = await shop.lane()
        lane.course.repeating = True

        outcomes = await lane.process(payment(100, "r0"), payment(101, "r1", amount=99))

        assert outcomes == [Skipped(), Quarantined(Reason.CONFLICT, outcomes[1].error, ("amount",))]


async def test_two_keys_with_one_hash_never_pass_for_duplicates_in_a_replay_either(dsn):
    async with repeating(dsn) as (shop, lane):
        await shop.rows("UPDATE idem.inbox SET message_id = 'another' WHERE message_id = 'r1'")
        outcomes = await lane.process(payment(100, "r0"), payment(101, "r1"))

        assert outcomes[0] == Skipped()
        assert outcomes[1].fields == ("idempotency key",)


async def test_a_commit_that_is_unknown_is_decided_by_claims_and_its_functions_fire(dsn):
    """Looked for first, its own message would pass for a duplicate of an earlier one."""
    fired, trigger = [], LostCommit("answer")
    proxy, address = through(dsn, trigger)

    async def handler(request, tx):
        tx.after_commit(fired.append, request.payment_id)
        await insert(request, tx)

    async with proxy, repeating(dsn, handler, via=address) as (shop, lane):
        trigger.arm()
        outcomes = await lane.process(payment(100, "r0"), payment(101, "r1"), payment(102, "new"))

        assert outcomes == [Skipped(), Skipped(), Applied()]
        assert fired == ["r0", "r1", "r2", "r3", "new"]
        assert await shop.payments() == ["new", "r0", "r1", "r2", "r3"]


async def test_the_same_delivery_behind_a_copy_of_it_leaves_no_trace_where_there_is_no_progress(dsn):
    async with open_shop(dsn) as shop:
        await shop.app.process([payment(1, "a", partition=1)])
        processor = await shop.app.runtime().open()
        course = Course(PlainSeal(shop.app.group, shop.app.runtime()._topics, "idem"), repeating=True)

        outcomes = await processor.process(course, [payment(5, "a"), payment(1, "a", partition=1)])

        assert outcomes == [Skipped()] * 2
        assert await shop.rows('SELECT partition, "offset" FROM idem.duplicate') == [(0, 5)]


async def test_it_claims_at_once_again_when_duplicates_get_few(dsn):
    async with repeating(dsn) as (_, lane):
        await lane.process(payment(100, "a"), payment(101, "b"), payment(102, "r0"))

        assert not lane.course.repeating

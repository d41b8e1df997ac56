"""Runs that may have killed their process are marked; a mark says something only if the process died in it."""

import asyncio
import contextlib

import pytest

from consumer_idem.errors import Fenced
from consumer_idem.inbox.attempts import Attempts
from consumer_idem.outcome import Applied, Quarantined, Reason
from consumer_idem.testing.lost import LostCommit
from consumer_idem.transaction.short import short
from tests.planted import planted
from tests.proxied import through
from tests.shop import insert, open_shop, payment


async def crashed(shop, lane, offset, times):
    """Leave behind what processes that died in this message's run leave behind."""
    for _ in range(times):
        async with short(shop.app.runtime().database, "idem") as connection:
            await Attempts("idem").mark(connection, lane.seal.lane_slot, offset, lane.seal.fence)


async def test_a25_a_message_that_has_killed_too_often_is_not_run_again(dsn):
    async with open_shop(dsn) as shop:
        lane = await shop.lane()
        await crashed(shop, lane, 1, 3)
        lane.course.plan.in_doubt = 3
        outcomes = await lane.process(payment(0), payment(1), payment(2))

        assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
        assert outcomes[1].reason is Reason.CRASHED
        assert await shop.payments() == ["p0", "p2"]


async def test_a25_a_message_is_given_its_chances(dsn):
    async with open_shop(dsn) as shop:
        lane = await shop.lane()
        await crashed(shop, lane, 0, 2)
        lane.course.plan.in_doubt = 1

        assert await lane.process(payment(0)) == [Applied()]
        assert await shop.rows("SELECT count(*) FROM idem.attempt") == [0]


async def test_infrastructure_errors_in_marked_runs_are_not_taken_for_crashes(dsn):
    """The database is locked away six times while the run is marked: it must not count as six deaths."""
    failures = []

    async def handler(request, tx):
        if len(failures) < 6:
            failures.append(1)
            await tx.execute("DO $$ BEGIN RAISE EXCEPTION 'no memory' USING ERRCODE = '53200'; END $$")
        await insert(request, tx)

    async with open_shop(dsn, handler) as shop:
        lane = await shop.lane()
        lane.course.plan.in_doubt = 1
        with planted("inbox", "unmark", "UPDATE", "SELECT 1 / 0; UPDATE"):
            assert await lane.process(payment(0)) == [Applied()]

        assert await shop.payments() == ["p0"]


async def test_a25_a_run_that_was_fenced_is_not_taken_for_a_crash(dsn):
    """Four workers in a row are too slow for their partition: none of them died."""
    slow = []

    async def handler(request, tx):
        slow.append(request.payment_id)
        if len(slow) <= 4:
            await worker.taken_over()
        await insert(request, tx)

    for fenced in (True,) * 4 + (False,):
        async with open_shop(dsn, handler) as worker:
            lane = await worker.lane()
            lane.course.plan.in_doubt = 1
            with pytest.raises(Fenced) if fenced else contextlib.nullcontext():
                assert await lane.process(payment(0)) == [Applied()]


async def test_a25_a_run_that_was_cancelled_is_not_taken_for_a_crash(dsn):
    started = asyncio.Event()

    async def handler(request, tx):
        started.set()
        await asyncio.Event().wait()

    async with open_shop(dsn, handler) as shop:
        lane = await shop.lane()
        lane.course.plan.in_doubt = 1
        running = asyncio.create_task(lane.process(payment(0)))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert await shop.rows("SELECT crashes FROM idem.attempt") == [0]


async def test_a25_of_what_runs_while_a_suspect_runs_nothing_else_is_suspected(dsn):
    """Two lanes, and in each a message in whose run a process died: should one kill again, the other must not be running."""
    running, together, marked_twice = set(), [], []

    async def handler(request, tx):
        running.add(request.payment_id)
        together.append(frozenset(running))
        await asyncio.sleep(0.05)
        marked_twice.append([row["partition"] for row in await tx.fetch("SELECT partition FROM idem.attempt WHERE crashes = 2 ORDER BY 1")])
        running.remove(request.payment_id)
        await insert(request, tx)

    async with open_shop(dsn, handler) as shop:
        lanes = [await shop.lane(0), await shop.lane(1)]
        for lane in lanes:
            await crashed(shop, lane, 0, 1)
            lane.course.plan.in_doubt = 2
        outcomes = await asyncio.gather(
            *(lane.process(payment(0, f"suspect{n}", partition=n), payment(1, f"other{n}", partition=n)) for n, lane in enumerate(lanes))
        )

        assert outcomes == [[Applied()] * 2] * 2
        assert not [names for names in together if {"suspect0", "suspect1"} <= names]
        assert [0] in marked_twice
        assert [0, 1] not in marked_twice
        assert await shop.rows("SELECT count(*) FROM idem.attempt") == [0]


async def test_a25_a_message_that_killed_too_often_is_not_run_where_the_mark_got_no_answer(dsn):
    trigger = LostCommit("answer")
    proxy, address = through(dsn, trigger)
    async with proxy, open_shop(address) as shop:
        lane = await shop.lane()
        await crashed(shop, lane, 0, 3)
        lane.course.plan.in_doubt = 1
        trigger.arm()
        (outcome,) = await lane.process(payment(0))

        assert (trigger.fired, outcome.reason) == (1, Reason.CRASHED)

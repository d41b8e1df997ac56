"""Runs that may have killed their process are marked; a mark says something only if the process died in it."""

from consumer_idem.inbox.attempts import Attempts
from consumer_idem.outcome import Applied, Quarantined, Reason
from consumer_idem.transaction.short import short
from tests.planted import planted
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

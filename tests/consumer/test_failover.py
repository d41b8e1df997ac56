"""A COMMIT without an answer, and a fail-over to a real standby before anybody could ask what became of it."""

import asyncio

import pytest

from consumer_idem.outcome import Applied
from consumer_idem.testing.lost import LostCommit
from consumer_idem.testing.proxy_connection import Fate
from tests.consumer.test_commit import handler_with
from tests.failover import Pair, open_pair, value_at
from tests.shop import open_shop, payment

COMMITTED = "SELECT count(*) FROM payment"


async def fail_over(pair: Pair) -> None:
    await asyncio.to_thread(pair.primary.kill9)
    await pair.promote()


async def commits_unheard(pair: Pair, shop, lost: LostCommit, *, reaches_standby: bool):
    """Return a run of one message, committed by the old primary, that has not heard of it when the standby leads."""
    lane = await shop.lane()
    assert await lane.process(payment(0, "before")) == [Applied()]
    await pair.caught_up()
    if not reaches_standby:
        pair.part()
    lost.arm()
    running = asyncio.create_task(lane.process(payment(1, "unheard")))
    await until(pair.primary, COMMITTED, 2)
    if reaches_standby:
        await pair.caught_up()
    return running


async def until(server, sql: str, wanted: object) -> None:
    async with asyncio.timeout(15):
        while await value_at(server, sql) != wanted:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("reaches_standby", [True, False])
async def test_b10_b17_a_commit_without_an_answer_in_a_failover_is_applied_once(reaches_standby):
    fired, lost = [], LostCommit("answer", then=Fate.HANG)
    async with open_pair(lost) as pair, open_shop(pair.dsn, handler_with(fired)) as shop:
        running = await commits_unheard(pair, shop, lost, reaches_standby=reaches_standby)
        assert await value_at(pair.standby, COMMITTED) == 1 + reaches_standby
        await fail_over(pair)
        pair.clients.cut()

        assert await running == [Applied()]
        assert await shop.payments() == ["before", "unheard"]
        assert [entry for entry in fired if "rollback" not in entry] == ["before", "unheard"]
        # Run again where it was lost; found by its attempt where it was not.
        assert any("rollback" in entry for entry in fired) == (not reaches_standby)


async def test_b13_a_transaction_id_that_lies_about_a_lost_commit_is_not_believed():
    """The new primary has given the old transaction's id to others, and says of it: committed."""
    fired, lost = [], LostCommit("answer", then=Fate.HANG)
    async with open_pair(lost) as pair, open_shop(pair.dsn, handler_with(fired)) as shop:
        running = await commits_unheard(pair, shop, lost, reaches_standby=False)
        xid = await value_at(pair.primary, "SELECT xmin FROM payment WHERE id = 'unheard'")
        await fail_over(pair)
        while await value_at(pair.standby, "SELECT pg_current_xact_id()::text::bigint") <= xid:
            pass
        assert await value_at(pair.standby, f"SELECT pg_xact_status('{xid}'::xid8)") == "committed"
        assert await value_at(pair.standby, COMMITTED) == 1
        pair.clients.cut()

        assert await running == [Applied()]
        assert await shop.payments() == ["before", "unheard"]

"""A COMMIT without a clear answer: found out by running again, never guessed."""

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager

import asyncpg
import pytest

from consumer_idem.outcome import Applied, Rejected, Skipped
from consumer_idem.sql import migrations
from consumer_idem.testing.lost import LostCommit
from consumer_idem.testing.proxy_connection import Fate
from consumer_idem.testing.waiting import eventually
from tests.proxied import through
from tests.shop import insert, open_shop, payment


def handler_with(fired):
    async def handler(request, tx):
        tx.after_commit(fired.append, request.payment_id)
        tx.after_rollback(fired.append, f"rollback {request.payment_id}")
        await insert(request, tx)
        return Rejected("no") if request.payment_id == "refused" else None

    return handler


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_b10_a_lost_commit_is_found_out_and_its_functions_fire_once(dsn, lost):
    fired, trigger = [], LostCommit(lost)
    proxy, address = through(dsn, trigger)
    async with proxy, open_shop(address, handler_with(fired)) as shop:
        lane = await shop.lane()
        trigger.arm()
        outcomes = await lane.process(payment(0, "a"), payment(1, "a"), payment(2, "refused"), payment(3, "c"))
        shop.dsn = dsn

        assert outcomes == [Applied(), Skipped(), Rejected("no"), Applied()]
        assert await shop.payments() == ["a", "c", "refused"]
        assert [entry for entry in fired if "rollback" not in entry] == ["a", "refused", "c"]
        assert any("rollback" in entry for entry in fired) == (lost == "request")
        assert trigger.fired == 1


async def test_b10_every_commit_lost_in_turn_settles_everything_once(dsn):
    fired, trigger = [], LostCommit("answer")
    proxy, address = through(dsn, trigger)
    async with proxy, open_shop(address, handler_with(fired)) as shop:
        lane = await shop.lane()
        trigger.arm(20, every=2)
        for offset in range(40):
            assert await lane.process(payment(offset)) == [Applied()]
        shop.dsn = dsn

        assert await shop.payments() == sorted(f"p{offset}" for offset in range(40))
        assert fired == [f"p{offset}" for offset in range(40)]


SLOW_COMMIT = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow();
"""


@asynccontextmanager
async def commits_wait(shop):
    """Every COMMIT that writes a payment waits in the server until the block calls what it is given."""
    connection = await asyncpg.connect(shop.dsn)
    await connection.execute(SLOW_COMMIT)
    await connection.execute("SELECT pg_advisory_lock(4711)")
    yield lambda: connection.execute("SELECT pg_advisory_unlock(4711)")
    await connection.close()


async def waiting(shop, what):
    """Wait until a "commit" waits for its lock, or another statement for one of this kind."""

    who = "CASE query WHEN 'COMMIT' THEN 'commit' ELSE wait_event END"
    sql = f"SELECT {who} FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

    async def waits():
        return what in await shop.rows(sql)

    await eventually(waits)


async def test_b11_a_worker_cancelled_during_commit_applies_nothing_twice_and_fires_nothing_early(dsn):
    fired = []
    async with open_shop(dsn, handler_with(fired)) as shop, commits_wait(shop) as go_on:
        lane = await shop.lane()
        task = asyncio.create_task(lane.process(payment(0, "a")))
        await waiting(shop, "commit")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert fired == []
        await go_on()
    async with open_shop(dsn, handler_with(fired)) as restarted:
        assert await (await restarted.lane()).process(payment(0, "a"), payment(1, "b")) == [Skipped(), Applied()]
        assert await restarted.payments() == ["a", "b"]
        assert fired == ["b"]


async def test_b12_an_earlier_commit_that_is_still_pending_is_waited_for(dsn):
    """The connection is lost while COMMIT still runs in the server: the claim of the second run waits for it."""
    fired = []
    proxy, address = through(dsn)
    async with proxy, open_shop(address, handler_with(fired)) as shop:
        shop.dsn = dsn
        async with commits_wait(shop) as go_on:
            lane = await shop.lane()
            task = asyncio.create_task(lane.process(payment(0, "a")))
            await waiting(shop, "commit")
            proxy.cut()
            await waiting(shop, "transactionid")
            await go_on()

            assert await task == [Applied()]
        assert await shop.payments() == ["a"]
        assert [entry for entry in fired if "rollback" not in entry] == ["a"]


async def test_b10_a_commit_that_hangs_is_given_up_and_found_out(dsn):
    from datetime import timedelta

    from consumer_idem.app import App
    from consumer_idem.postgres.asyncpg import AsyncpgDatabase
    from tests.shop import TOPIC, checkout

    fired, trigger = [], LostCommit("answer", then=Fate.HANG)
    proxy, address = through(dsn, trigger)
    async with proxy:
        app = App(group="shop", database=AsyncpgDatabase(address, command_timeout=timedelta(seconds=1)))
        app.handler(TOPIC, source=checkout(), name="apply-payment")(handler_with(fired))
        async with open_shop(dsn, app=app) as shop:
            lane = await shop.lane()
            trigger.arm()

            assert await lane.process(payment(0, "a")) == [Applied()]
            assert await shop.payments() == ["a"]
            assert fired == ["a"]


async def test_b10_a_start_whose_registration_got_no_answer_goes_on(dsn):
    trigger = LostCommit("answer")
    proxy, address = through(dsn, trigger)
    async with proxy, open_shop(address) as shop:
        trigger.arm(3)

        assert await (await shop.lane()).process(payment(0)) == [Applied()]
        assert trigger.fired == 3


async def test_what_is_counted_because_the_database_failed_is_not_forgotten_when_it_fails_again(services):
    """Else a message that ends the server each time would never be counted, and run for ever."""
    server = services.postgres(fsync=True)
    dsn = server.dsn()
    connection = await asyncpg.connect(dsn)
    for script in migrations("idem").values():
        await connection.execute(script)
    async with open_shop(dsn) as shop:
        lane, processor = await shop.lane(), await shop.app.runtime().open()
        await lane.process(payment(0))
        lane.course.unavailable, lane.course.unavailable_since = 5, time.monotonic() - 3600
        lane.course.stopping.set()
        await processor._back_off(lane.course, [payment(1)], "ConnectionError: the server is gone")
        await connection.execute("SELECT 1")
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await connection.execute("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'")
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                    left = await shop.rows("SELECT failures FROM idem.attempt")
                    break
                await asyncio.sleep(0.05)

        assert left == [1]


async def test_b10_the_end_of_silent_transactions_may_get_no_answer_either(dsn):
    """It is only a help: raised out of `app.process`, it would take with it what is known about an earlier commit."""
    trigger, runs = LostCommit("answer"), []
    proxy, address = through(dsn, trigger)

    async def handler(request, tx):
        runs.append(request.payment_id)
        await insert(request, tx)
        if len(runs) == 1:
            trigger.arm()
            await tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    async with proxy, open_shop(address, handler) as shop:
        assert await shop.app.process([payment(0, "a")]) == [Applied()]
        assert (trigger.fired, runs) == (1, ["a", "a"])


async def test_a14_what_a_failover_takes_from_a_proven_commit_is_applied_again(dsn):
    """The first message shows that the lost commit was made; then the database loses it, and the second message's key is free."""
    trigger, runs = LostCommit("answer"), []
    proxy, address = through(dsn, trigger)

    async def handler(request, tx):
        runs.append(request.payment_id)
        await insert(request, tx)

    async with proxy, open_shop(address, handler) as shop:
        processor = await shop.app.runtime().open()
        run, tries = processor._run, []

        async def run_and_fail_over(course, chunk, **options):
            tries.append(len(chunk))
            if tries[1:] == [1, 1]:
                for table in ("idem.inbox", "payment"):
                    await shop.rows(f"DELETE FROM {table}")
            result = await run(course, chunk, **options)
            course.plan.one_by_one(2 if len(tries) == 1 else 0)
            return result

        processor._run = run_and_fail_over
        trigger.arm()
        shop.dsn = dsn
        outcomes = await shop.app.process([payment(0, "a"), payment(1, "b")])

        assert outcomes == [Applied(), Applied()]
        assert (tries, runs) == ([2, 1, 1], ["a", "b", "b"])
        assert await shop.payments() == ["b"]

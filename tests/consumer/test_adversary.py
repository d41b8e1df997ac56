"""Ways in which an effect was once lost or doubled, a function fired wrongly, or a partition wedged."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

from consumer_idem.consumer import processor
from consumer_idem.consumer.reread import Order
from consumer_idem.consumer.result import InDoubt
from consumer_idem.consumer.worker import Worker
from consumer_idem.errors import KafkaUnavailable, QuarantineFailed, RetryLater, Unreadable
from consumer_idem.outcome import Applied, Quarantined, Retry, Skipped
from consumer_idem.testing.lost import LostCommit
from consumer_idem.testing.waiting import eventually
from tests.consumer.memory_log import PARTITION, MemoryLog, make_lane
from tests.proxied import through
from tests.shop import insert, open_shop, payment


async def test_a_deferred_write_that_another_handler_could_not_send_is_not_lost(dsn):
    """asyncpg refuses the argument by itself: the server hears of no error, so neither the seal nor COMMIT does."""

    async def handler(request, tx):
        if request.payment_id == "swallows":
            with contextlib.suppress(Exception):
                await tx.fetch("SELECT 1")
            return
        amount = "no number" if request.payment_id == "bad" else request.amount
        tx.defer("INSERT INTO payment VALUES ($1, $2, $3)", request.payment_id, request.account, amount)

    async with open_shop(dsn, handler) as shop:
        outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "bad"), payment(2, "swallows"), payment(3, "c"))

        assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied, Applied]
        assert await shop.payments() == ["a", "c"]


async def test_a_retry_in_a_marked_run_is_not_taken_for_a_crash(dsn):
    waits = []

    async def handler(request, tx):
        if len(waits) < 6:
            waits.append(1)
            raise RetryLater(timedelta(0))
        await insert(request, tx)

    async with open_shop(dsn, handler) as shop:
        lane = await shop.lane()
        lane.course.plan.in_doubt = 1
        for _ in range(6):
            assert await lane.process(payment(0)) == [Retry(timedelta(0))]

        assert await lane.process(payment(0)) == [Applied()]
        assert await shop.payments() == ["p0"]


async def test_a_handler_that_lets_a_cancellation_out_that_is_not_its_own_is_a_handler_that_fails(dsn):
    """It awaited something that was cancelled: its lane is not, and must not end for it."""

    async def handler(request, tx):
        if request.payment_id == "bad":
            await insert(request, tx)
            cancelled = asyncio.ensure_future(asyncio.sleep(60))
            cancelled.cancel()
            await cancelled
        await insert(request, tx)

    async with open_shop(dsn, handler) as shop:
        outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "bad"), payment(2, "c"))

        assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
        assert await shop.payments() == ["a", "c"]


async def test_an_unknown_commit_of_a_marked_run_is_remembered_also_if_its_mark_cannot_be_taken_back(dsn):
    fired, trigger = [], LostCommit("answer")
    proxy, address = through(dsn, trigger)

    async def handler(request, tx):
        tx.after_commit(fired.append, request.payment_id)
        await insert(request, tx)
        trigger.arm(2)

    async with proxy, open_shop(address, handler) as shop:
        lane = await shop.lane()
        lane.course.plan.in_doubt = 1

        assert await lane.process(payment(0)) == [Applied()]
        assert fired == ["p0"]


async def test_a_mark_whose_commit_is_unknown_counts_once(dsn):
    """Twice, and a message in whose run two processes were killed was quarantined as if it had killed four."""
    marks, trigger = [], LostCommit("answer")
    proxy, address = through(dsn, trigger)

    async def handler(request, tx):
        marks.extend(await shop.rows("SELECT crashes FROM idem.attempt"))
        await insert(request, tx)

    async with proxy, open_shop(address, handler) as shop:
        shop.dsn = dsn
        lane = await shop.lane()
        lane.course.plan.in_doubt = 1
        trigger.arm()

        assert await lane.process(payment(0)) == [Applied()]
        assert trigger.fired == 1
        assert marks == [1]


async def nothing():
    pass


async def one_by_one(shop, meanwhile=nothing):
    """Let the messages of a commit that is unknown run again one by one, after something else has happened."""
    processor = await shop.app.runtime().open()
    follow = processor._follow

    async def alone(course, chunk, result):
        if isinstance(result, InDoubt):
            course.plan.one_by_one(len(chunk))
            await meanwhile()
        return await follow(course, chunk, result)

    processor._follow = alone


class TestDoubt:
    """A commit that is unknown while its messages run again in other batches."""

    async def test_its_messages_keep_their_outcomes_and_leave_no_second_trace_when_they_run_one_by_one(self, dsn):
        fired, trigger = [], LostCommit("answer")
        proxy, address = through(dsn, trigger)

        async def handler(request, tx):
            tx.after_commit(fired.append, request.payment_id)
            await insert(request, tx)

        async with proxy, open_shop(address, handler) as shop:
            shop.dsn = dsn
            lane = await shop.lane()
            await one_by_one(shop)
            trigger.arm()
            outcomes = await lane.process(payment(0, "a"), payment(1, "b"), payment(2, "a"))

            assert outcomes == [Applied(), Applied(), Skipped()]
            assert fired == ["a", "b"]
            assert await shop.rows('SELECT "offset" FROM idem.duplicate') == [2]

    async def test_a_release_in_between_does_not_disprove_it(self, dsn):
        fired, fails, trigger = [], [1], LostCommit("answer")
        proxy, address = through(dsn, trigger)

        async def handler(request, tx):
            tx.after_commit(fired.append, request.payment_id)
            if request.payment_id == "bad" and fails:
                raise ValueError
            await insert(request, tx)

        async with proxy, open_shop(address, handler) as shop:
            shop.dsn = dsn
            lane = await shop.lane()

            async def release():
                fails.clear()
                await (await shop.app.runtime().releaser()).release(1, Order(operator="anna"))

            await one_by_one(shop, release)
            trigger.arm()
            await lane.process(payment(0, "bad"), payment(1, "b"))

            assert sorted(fired) == ["b", "bad"]
            assert await shop.payments() == ["b", "bad"]

    async def test_the_same_delivery_twice_in_one_call_keeps_both_outcomes(self, dsn):
        trigger = LostCommit("answer")
        proxy, address = through(dsn, trigger)
        async with proxy, open_shop(address) as shop:
            await shop.app.open()
            trigger.arm()

            assert await shop.app.process([payment(0, "a"), payment(0, "a")]) == [Applied(), Skipped()]

    @pytest.mark.parametrize("lost", ["answer", "request"])
    async def test_functions_for_a_rollback_of_a_call_that_is_undone_fire_once(self, dsn, lost):
        fired, trigger = [], LostCommit(lost)
        proxy, address = through(dsn, trigger)

        async def handler(request, tx):
            tx.after_rollback(fired.append, request.payment_id)
            if request.payment_id == "bad":
                raise ValueError
            await insert(request, tx)

        async with proxy, open_shop(address, handler) as shop:
            lane = await shop.lane()
            trigger.arm()
            await lane.process(payment(0, "a"), payment(1, "bad"))

            assert sorted(fired) == (["bad"] * 3 if lost == "answer" else ["a"] + ["bad"] * 6)


async def test_a_message_whose_run_always_costs_the_connection_does_not_wedge_the_only_partition(dsn, monkeypatch):
    """There is no other lane whose commits could show that it is this message, and not the database."""
    monkeypatch.setattr(processor, "_PATIENCE", timedelta(seconds=0.1))

    async def handler(request, tx):
        await insert(request, tx)
        if request.payment_id == "bad":
            await tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    async with open_shop(dsn, handler) as shop, asyncio.timeout(30):
        outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "bad"), payment(2, "c"))

        assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
        assert await shop.payments() == ["a", "c"]


class TestLane:
    async def test_a_lane_that_is_fenced_at_bytes_that_cannot_be_read_takes_its_partition_again(self, dsn):
        log = MemoryLog([payment(0)])

        async def unreadable():
            if log.position == 1:
                raise Unreadable(PARTITION, 1, 2, error="no batch", raw=b"?")

        log.before["poll"] = unreadable
        async with open_shop(dsn) as shop:
            lane = await make_lane(shop, log)
            await lane.run_once()
            log.messages.append(payment(2))
            await shop.taken_over()
            for _ in range(4):
                await lane.run_once()

            assert await shop.payments() == ["p0", "p2"]
            assert await shop.rows('SELECT "offset" FROM idem.quarantine') == [1]

    async def test_what_is_settled_before_an_error_is_not_settled_again(self, dsn):
        """The quarantine takes nothing, so that the lane meets the same message again and again: what stands before it is noted once."""

        async def handler(request, tx):
            if request.payment_id == "bad":
                raise ValueError
            await insert(request, tx)

        async with open_shop(dsn, handler) as shop:
            await shop.rows("ALTER TABLE idem.quarantine ADD CHECK (message_id <> 'bad')")
            lane = await make_lane(shop, MemoryLog([payment(0, "a"), payment(1, "b"), payment(2, "a"), payment(3, "bad")]))
            await lane.run_once()
            for _ in range(3):
                with pytest.raises(QuarantineFailed):
                    await lane.run_once()

            assert await shop.rows('SELECT "offset" FROM idem.duplicate') == [2]
            assert lane.watermark == 3

    async def test_a_lane_whose_progress_the_database_has_lost_starts_early_also_if_its_first_try_to_take_it_fails(self, dsn):
        log, kafka_is_away = MemoryLog([payment(offset) for offset in range(6)]), [1]

        async def unavailable():
            if log.stored is not None and kafka_is_away:
                kafka_is_away.clear()
                raise KafkaUnavailable

        log.before["committed"] = unavailable
        async with open_shop(dsn) as shop:
            lane = await make_lane(shop, log)
            await lane.run_once()
            await lane.run_once()
            log.stored = lane.watermark
            for table in ("idem.progress", "idem.inbox", "payment"):
                await shop.rows(f"DELETE FROM {table}")
            with pytest.raises(KafkaUnavailable):
                await lane.run_once()
            for _ in range(3):
                await lane.run_once()

            assert await shop.payments() == [f"p{offset}" for offset in range(6)]


class TestWorker:
    """A partition never has two lanes in one process: they would share the client's position, and each would miss messages."""

    async def test_a_lane_that_ended_is_not_started_again_while_its_partition_is_given_back(self, dsn):
        log, answer = MemoryLog([payment(0)]), asyncio.Event()
        async with open_shop(dsn) as shop:
            first, second = unused = [await make_lane(shop, log), await make_lane(shop, log)]
            worker = Worker(log, lambda _: unused.pop(0))
            await worker.assigned([PARTITION])
            await eventually(lambda: first.watermark == 1)
            first.ended = True
            log.before["holds"] = answer.wait
            reviving = asyncio.create_task(worker._revive())

            async def release_while_reviving():
                answer.set()
                await reviving

            first.release = release_while_reviving
            await worker.revoked([PARTITION])

            assert worker.lanes() == {}
            assert unused == [second]

    async def test_a_lane_that_was_assigned_while_its_predecessor_was_given_back_is_not_forgotten(self, dsn):
        log, given_back, assigned = MemoryLog([payment(0)]), asyncio.Event(), asyncio.Event()

        async def commit():
            given_back.set()
            await assigned.wait()

        log.before["commit"] = commit
        async with open_shop(dsn) as shop:
            first, second = unused = [await make_lane(shop, log), await make_lane(shop, log)]
            worker = Worker(log, lambda _: unused.pop(0))
            await worker.assigned([PARTITION])
            await eventually(lambda: first.watermark == 1)
            stopping = asyncio.create_task(worker.revoked([PARTITION]))
            await given_back.wait()
            await worker.assigned([PARTITION])
            assigned.set()
            await stopping

            assert worker.lanes() == {PARTITION: second}
            await worker.revoked([PARTITION])

    async def test_a_lane_whose_task_has_died_is_started_again(self, dsn):
        log = MemoryLog([payment(0)])
        async with open_shop(dsn) as shop:
            first, second = unused = [await make_lane(shop, log), await make_lane(shop, log)]
            worker = Worker(log, lambda _: unused.pop(0))
            await worker.assigned([PARTITION])
            await eventually(lambda: first.watermark == 1)
            task = worker._running[PARTITION].task
            task.cancel()
            await asyncio.wait([task])
            await worker._revive()

            assert worker.lanes() == {PARTITION: second}
            await worker.revoked([PARTITION])


class TestSession:
    """What a handler leaves behind in the session must not reach the next transaction on the same connection."""

    @pytest.mark.parametrize(
        "leaves",
        [
            "SET search_path TO elsewhere, public",
            "SELECT set_config('search_path', 'elsewhere, public', false)",
            "SET ROLE nobody",
            "CREATE TEMP TABLE payment (id text, account text, amount numeric)",
            "SET session_replication_role = replica",
            "SET default_transaction_isolation = 'serializable'",
        ],
    )
    @pytest.mark.parametrize("committed", [True, False])
    async def test_settings_roles_and_temporary_tables_end_with_the_transaction(self, dsn, leaves, committed):
        async def handler(request, tx):
            await insert(request, tx)
            if request.payment_id == "leaves":
                await tx._unit.connection.raw.execute(leaves)
                if not committed:
                    raise RetryLater(timedelta(0))

        async with open_shop(dsn, handler) as shop:
            await shop.rows("CREATE SCHEMA elsewhere")
            await shop.rows("CREATE TABLE elsewhere.payment (LIKE payment)")
            await shop.rows("DO $$ BEGIN CREATE ROLE nobody; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
            lane = await shop.lane()
            await lane.process(payment(0, "leaves"))
            outcomes = await lane.process(*(payment(offset) for offset in range(1 - (not committed), 4)))

            assert outcomes == [Applied()] * len(outcomes)
            assert {"p1", "p2", "p3"} <= set(await shop.payments())

    @pytest.mark.parametrize("committed", [True, False])
    async def test_a_lock_of_the_session_ends_with_the_transaction(self, dsn, committed):
        async def handler(request, tx):
            await tx.execute("SELECT pg_advisory_lock(4711)")
            if not committed:
                raise RetryLater(timedelta(0))

        async with open_shop(dsn, handler) as shop:
            await (await shop.lane()).process(payment(0))

            assert await shop.rows("SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []

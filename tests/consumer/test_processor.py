"""One message, one effect: what becomes of messages on real PostgreSQL."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from consumer_idem.consumer.handler import RetryPolicy
from consumer_idem.errors import DeclarationError, RetryLater, TransactionControlRefused, TransactionEnded
from consumer_idem.inbox.fingerprint import Fingerprint
from consumer_idem.message import Message
from consumer_idem.outcome import Applied, Quarantined, Reason, Rejected, Retry, Skipped
from tests.shop import checkout, insert, insert_later, open_shop, payment

ENTRIES = 'SELECT reason, "offset", fields FROM idem.quarantine ORDER BY "offset"'


@pytest.mark.parametrize("handler", [insert, insert_later])
async def test_each_message_is_applied_and_its_progress_moves_with_it(dsn, handler):
    async with open_shop(dsn, handler) as shop:
        outcomes = await (await shop.lane()).process(payment(0), payment(1), payment(5))

        assert outcomes == [Applied()] * 3
        assert await shop.payments() == ["p0", "p1", "p5"]
        assert await shop.rows("SELECT next_offset FROM idem.progress") == [6]


async def test_a_copy_under_another_position_is_skipped_and_recorded(dsn):
    async with open_shop(dsn) as shop:
        await (await shop.lane()).process(payment(0, "4711"))
        outcomes = await (await shop.lane(1)).process(payment(9, "4711", partition=1))

        assert outcomes == [Skipped()]
        assert await shop.payments() == ["4711"]
        assert await shop.rows('SELECT partition, "offset" FROM idem.duplicate') == [(1, 9)]


async def test_the_same_delivery_again_is_skipped_and_leaves_no_trace(dsn):
    async with open_shop(dsn) as shop:
        lane = await shop.lane()
        await lane.process(payment(0))
        lane.seal.watermark = 0

        assert await lane.process(payment(0)) == [Skipped()]
        assert await shop.rows("SELECT * FROM idem.duplicate") == []


async def test_copies_in_one_batch_are_skipped(dsn):
    async with open_shop(dsn) as shop:
        outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "b"), payment(2, "a"), payment(3, "a"))

        assert outcomes == [Applied(), Applied(), Skipped(), Skipped()]
        assert await shop.payments() == ["a", "b"]
        assert await shop.rows('SELECT "offset" FROM idem.duplicate ORDER BY 1') == [2, 3]


async def test_e1_same_id_with_another_amount_conflicts_with_a_copy_committed_long_ago(dsn):
    async with open_shop(dsn) as shop:
        await (await shop.lane()).process(payment(0, "4711", amount="10.00"))
    async with open_shop(dsn) as restarted:
        outcomes = await (await restarted.lane()).process(payment(1, "4711", amount="99.00"), payment(2, "4711", amount="10.0"))

        assert outcomes == [Quarantined(Reason.CONFLICT, outcomes[0].error, ("amount",)), Skipped()]
        assert await restarted.payments() == ["4711"]
        assert await restarted.rows(ENTRIES) == [("conflict", 1, ["amount"])]


async def test_e1_same_id_with_another_amount_conflicts_within_a_batch(dsn):
    async with open_shop(dsn) as shop:
        outcomes = await (await shop.lane()).process(payment(0, "4711", amount=10), payment(1, "4711", amount=99, account="bob"))

        assert outcomes[1] == Quarantined(Reason.CONFLICT, outcomes[1].error, ("account", "amount"))
        assert await shop.rows("SELECT amount FROM payment") == [10]


async def test_e1_same_id_with_another_amount_conflicts_with_a_copy_that_another_worker_has_not_committed_yet(dsn):
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request, tx):
        await insert(request, tx)
        reached.set()
        await go_on.wait()

    async with open_shop(dsn, slow) as one, open_shop(dsn, insert) as other:
        first = asyncio.create_task((await one.lane(0)).process(payment(0, "4711", amount=10)))
        await reached.wait()
        second = asyncio.create_task((await other.lane(1)).process(payment(0, "4711", partition=1, amount=99)))
        await waiting_for_lock(other)
        go_on.set()

        assert await first == [Applied()]
        assert (await second)[0].fields == ("amount",)
        assert await one.payments() == ["4711"]


async def test_e1_a_conflict_with_a_copy_that_rolls_back_is_none(dsn):
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def refused(request, tx):
        await insert(request, tx)
        reached.set()
        await go_on.wait()
        raise RetryLater(timedelta(0))

    async with open_shop(dsn, refused) as one, open_shop(dsn, insert) as other:
        first = asyncio.create_task((await one.lane(0)).process(payment(0, "4711", amount=10)))
        await reached.wait()
        second = asyncio.create_task((await other.lane(1)).process(payment(0, "4711", partition=1, amount=99)))
        await waiting_for_lock(other)
        go_on.set()

        assert await second == [Applied()]
        assert await first == [Retry(timedelta(0))]
        assert await one.rows("SELECT amount FROM payment") == [99]


async def waiting_for_lock(shop):
    async with asyncio.timeout(10):
        while not await shop.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"):
            await asyncio.sleep(0.01)


async def test_three_messages_without_id_are_three_entries_and_stay_three_when_delivered_again(dsn):
    nameless = [Message(topic="payments.requested", partition=0, offset=offset, value=b'{"amount": 1}') for offset in range(3)]
    empty = [payment(offset, "") for offset in range(3, 6)]
    async with open_shop(dsn) as shop:
        outcomes = await (await shop.lane()).process(*nameless, *empty)
    async with open_shop(dsn) as restarted:
        lane = await restarted.lane()
        lane.seal.watermark = 0
        again = await lane.process(*nameless, *empty)

        assert [outcome.reason for outcome in outcomes] == [outcome.reason for outcome in again]
        assert {outcome.reason for outcome in outcomes} <= {Reason.UNIDENTIFIABLE, Reason.UNDECODABLE}
        assert await restarted.rows("SELECT count(*) FROM idem.quarantine") == [6]
        assert await restarted.rows("SELECT count(*) FROM idem.inbox") == [0]


async def test_garbage_tombstones_and_unrouted_messages_are_kept_with_their_bytes(dsn):
    def raw(offset, value, headers=()):
        return Message(topic="payments.requested", partition=0, offset=offset, key=b"\x00k", value=value, headers=headers)

    async with open_shop(dsn, type="payment.requested") as shop:
        typed = [("ce_type", b"payment.requested")]
        outcomes = await (await shop.lane()).process(
            raw(0, b"\xff\x00", typed), raw(1, None, typed), raw(2, b"{}", [("ce_type", b"other"), ("n", None)])
        )

        assert [outcome.reason for outcome in outcomes] == [Reason.UNDECODABLE, Reason.TOMBSTONE, Reason.UNROUTED]
        assert await shop.rows('SELECT value FROM idem.quarantine ORDER BY "offset"') == [b"\xff\x00", None, b"{}"]
        assert await shop.rows("SELECT headers::text FROM idem.quarantine WHERE reason = 'unrouted'") == [
            '[["ce_type", "other"], ["n", null]]'
        ]


class TestRejected:
    async def test_a_returned_refusal_keeps_what_was_written_and_is_remembered(self, dsn):
        async def handler(request, tx):
            await insert(request, tx)
            tx.publish("refusals", value={"id": request.payment_id})
            return Rejected("insufficient-funds", {"missing": 3})

        async with open_shop(dsn, handler) as shop:
            lane = await shop.lane()
            assert await lane.process(payment(0, "x"), payment(1, "x")) == [
                Rejected("insufficient-funds", {"missing": 3}),
                Skipped(Rejected("insufficient-funds", {"missing": 3})),
            ]
            assert await lane.process(payment(2, "x")) == [Skipped(Rejected("insufficient-funds", {"missing": 3}))]
            assert await shop.payments() == ["x"]
            assert await shop.rows("SELECT topic FROM idem.outbox") == ["refusals"]
            assert await shop.rows("SELECT status::text FROM idem.inbox") == ["r"]

    @pytest.mark.parametrize("dirty", [False, True])
    async def test_a_raised_refusal_undoes_the_effect_and_is_remembered(self, dsn, dirty):
        async def handler(request, tx):
            if request.payment_id == "x":
                tx.publish("refusals", value=None)
                if dirty:
                    await insert(request, tx)
                raise Rejected("no")
            await insert(request, tx)

        async with open_shop(dsn, handler) as shop:
            lane = await shop.lane()
            assert await lane.process(payment(0, "a"), payment(1, "x"), payment(2, "b"), payment(3, "x")) == [
                Applied(),
                Rejected("no"),
                Applied(),
                Skipped(Rejected("no")),
            ]
            assert await shop.payments() == ["a", "b"]
            assert await shop.rows("SELECT count(*) FROM idem.outbox") == [0]

    async def test_a_refusal_may_follow_a_database_error(self, dsn):
        async def handler(request, tx):
            try:
                await tx.execute("SELECT 1 / 0")
            except asyncpg.DivisionByZeroError:
                raise Rejected("impossible") from None

        async with open_shop(dsn, handler) as shop:
            assert await (await shop.lane()).process(payment(0)) == [Rejected("impossible")]


class TestPoison:
    async def test_a_handler_that_raises_before_it_sends_costs_only_its_own_message(self, dsn):
        calls = []

        async def handler(request, tx):
            calls.append(request.payment_id)
            await insert_later(request, tx)
            if request.payment_id == "bad":
                raise ValueError("no such currency")

        async with open_shop(dsn, handler) as shop:
            outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "bad"), payment(2, "c"), payment(3, "bad"))

            assert outcomes == [Applied(), Quarantined(Reason.ATTEMPTS_USED_UP, "ValueError: no such currency"), Applied(), Skipped()]
            assert calls == ["a", "bad", "bad", "bad", "c"]
            assert await shop.payments() == ["a", "c"]

    async def test_a_handler_that_raises_after_it_sent_is_run_alone_and_quarantined(self, dsn):
        calls = []

        async def handler(request, tx):
            calls.append(request.payment_id)
            await insert(request, tx)
            if request.payment_id == "bad":
                raise ValueError("no such currency")

        async with open_shop(dsn, handler) as shop:
            outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "bad"), payment(2, "c"))

            assert outcomes == [Applied(), Quarantined(Reason.ATTEMPTS_USED_UP, "ValueError: no such currency"), Applied()]
            # Three attempts, the first of them among others.
            assert calls == ["a", "bad", "a", "bad", "bad", "c"]
            assert await shop.payments() == ["a", "c"]
            assert await shop.rows("SELECT status::text FROM idem.inbox WHERE message_id = 'bad'") == ["q"]
            assert await shop.rows("SELECT count(*) FROM idem.attempt") == [0]

    async def test_b8_a_handler_that_swallows_a_database_error_is_found_and_its_neighbours_are_applied(self, dsn):
        fired = []

        async def handler(request, tx):
            tx.after_commit(fired.append, request.payment_id)
            await insert(request, tx)
            if request.payment_id == "swallows":
                try:
                    await tx.execute("SELECT 1 / 0")
                except asyncpg.PostgresError:
                    pass

        async with open_shop(dsn, handler) as shop:
            outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "swallows"), payment(2, "c"))

            assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
            assert await shop.payments() == ["a", "c"]
            assert fired == ["a", "c"]

    @pytest.mark.parametrize("raises", [True, False])
    async def test_the_error_that_a_handler_swallowed_is_told_with_what_it_led_to(self, dsn, raises):
        async def handler(request, tx):
            try:
                async with tx.savepoint():
                    await tx.execute("SELECT * FROM nowhere")
            except asyncpg.PostgresError:
                pass
            try:
                await tx.execute("INSERT INTO account VALUES ($1, -1)", request.payment_id)
            except asyncpg.PostgresError:
                pass
            if raises:
                await tx.execute("SELECT 1")

        async with open_shop(dsn, handler) as shop:
            await (await shop.lane()).process(payment(0, "a"))
            [error] = await shop.rows("SELECT error FROM idem.quarantine")

        assert error.startswith("InFailedSQLTransactionError: ")
        assert "end of transaction block. The first statement that failed: CheckViolationError: " in error
        assert "account_balance_check" in error
        assert "nowhere" not in error

    async def test_what_a_handler_sets_for_the_transaction_reaches_what_others_defer(self, dsn):
        """As the guarantees say. Whoever changes it changes them."""

        async def handler(request, tx):
            if request.payment_id == "sets":
                await tx.execute("SET LOCAL application_name = 'set by a neighbour'")
            else:
                tx.defer("INSERT INTO account VALUES (current_setting('application_name'), $1)", request.amount)

        async with open_shop(dsn, handler) as shop:
            await (await shop.lane()).process(payment(0, "sets"), payment(1, "defers"))

            assert await shop.rows("SELECT id FROM account") == ["set by a neighbour"]

    async def test_a_deferred_write_that_fails_is_blamed_on_its_own_message(self, dsn):
        async def handler(request, tx):
            tx.defer("INSERT INTO account VALUES ($1, $2)", request.payment_id, request.amount)

        async with open_shop(dsn, handler) as shop:
            outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "b", amount=-1), payment(2, "c"))

            assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
            assert "account_balance_check" in outcomes[1].error
            assert await shop.rows("SELECT id FROM account ORDER BY 1") == ["a", "c"]

    async def test_a_constraint_that_fails_at_commit_is_blamed_on_its_own_message(self, dsn):
        async def handler(request, tx):
            await tx.execute("INSERT INTO late VALUES ($1)", request.amount)

        async with open_shop(dsn, handler) as shop:
            await shop.rows("CREATE TABLE late (n numeric UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            outcomes = await (await shop.lane()).process(payment(0, amount=1), payment(1, amount=1), payment(2, amount=2))

            assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
            assert await shop.rows("SELECT n FROM late ORDER BY 1") == [1, 2]

    async def test_a_batch_handler_that_raises_costs_only_the_message_that_it_raises_for(self, dsn):
        async def handler(items, tx):
            await tx.executemany("INSERT INTO payment VALUES ($1, 'x', 1)", [(item.payload.payment_id,) for item in items])
            for item in items:
                if item.payload.payment_id == "bad":
                    raise ValueError("bad")
                if item.payload.payment_id == "no":
                    item.reject(Rejected("no"))
                item.publish("out", value={"id": item.payload.payment_id})

        async with open_shop(dsn, handler, batch=True) as shop:
            lane = await shop.lane()
            assert await lane.process(payment(0, "a"), payment(1, "no"), payment(2, "a")) == [Applied(), Rejected("no"), Skipped()]
            outcomes = await lane.process(payment(3, "c"), payment(4, "bad"), payment(5, "d"))

            assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
            assert await shop.payments() == ["a", "c", "d", "no"]
            assert await shop.rows("SELECT count(*) FROM idem.outbox") == [4]

    async def test_a_message_that_spoils_its_batch_is_looked_for_by_halves_and_counted_alone(self, dsn):
        sizes = []

        async def handler(items, tx):
            ids = [item.payload.payment_id for item in items]
            sizes.append(len(ids))
            await tx.executemany("INSERT INTO payment VALUES ($1, 'x', 1)", [(id,) for id in ids])
            if "p5" in ids:
                raise ValueError("p5")

        async with open_shop(dsn, handler, batch=True) as shop:
            outcomes = await (await shop.lane()).process(*(payment(number) for number in range(8)))

            assert [type(outcome) for outcome in outcomes] == [Applied] * 5 + [Quarantined] + [Applied] * 2
            assert await shop.payments() == ["p0", "p1", "p2", "p3", "p4", "p6", "p7"]
            # All; a half; the rest, its half and one of that; the rest again, by itself; alone as often as the policy says; the rest.
            assert sizes == [8, 4, 4, 2, 1, 3, 1, 1, 1, 1, 2]

    async def test_attempts_of_lone_runs_survive_a_restart(self, dsn):
        calls = []

        async def handler(request, tx):
            calls.append(1)
            await insert(request, tx)
            if len(calls) == 3:
                asyncio.current_task().cancel()
                await asyncio.sleep(0)
            raise ValueError("always")

        async with open_shop(dsn, handler) as shop:
            with pytest.raises(asyncio.CancelledError):
                await (await shop.lane()).process(payment(0))
            assert await shop.rows("SELECT failures FROM idem.attempt") == [1]
        async with open_shop(dsn, handler) as restarted:
            outcomes = await (await restarted.lane()).process(payment(0))

            assert [type(outcome) for outcome in outcomes] == [Quarantined]
            # One attempt is in the database: among others, and alone once more.
            assert len(calls) == 3 + 2

    @pytest.mark.parametrize("sends", [True, False])
    async def test_a_retry_among_others_is_no_attempt(self, dsn, sends):
        calls = []

        async def handler(request, tx):
            if request.payment_id == "b":
                calls.append(1)
                if len(calls) == 1:
                    await insert(request, tx)
                    raise RetryLater(timedelta(0))
                if len(calls) == 2:
                    if sends:
                        await insert(request, tx)
                    raise ValueError("the first failure")
            await insert(request, tx)

        async with open_shop(dsn, handler, retry=RetryPolicy(attempts=2)) as shop:
            lane = await shop.lane()
            outcomes = await lane.process(payment(0, "a"), payment(1, "b"))

            assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
            assert len(calls) == 3

    async def test_what_failed_among_others_runs_alone_at_least_once_since_a_neighbour_may_have_been_the_cause(self, dsn):
        async def handler(request, tx):
            await tx.execute("SELECT set_config('shop.mode', coalesce($1, current_setting('shop.mode', true)), true)", request.note)
            if await tx.fetchval("SELECT current_setting('shop.mode', true)") == "odd" and request.note is None:
                raise ValueError("odd")
            await insert(request, tx)

        async with open_shop(dsn, handler, retry=RetryPolicy(attempts=1)) as shop:
            outcomes = await (await shop.lane()).process(payment(0, "a", note="odd"), payment(1, "b"))

            assert outcomes == [Applied(), Applied()]
            assert await shop.payments() == ["a", "b"]


class TestRetry:
    @pytest.mark.parametrize("dirty", [False, True])
    async def test_the_prefix_is_kept_and_the_rest_is_applied_later(self, dsn, dirty):
        early = []

        async def handler(request, tx):
            if request.payment_id == "b" and len(early) < 2:
                early.append(1)
                if dirty:
                    await insert(request, tx)
                raise RetryLater(timedelta(seconds=7))
            await insert(request, tx)

        async with open_shop(dsn, handler) as shop:
            lane = await shop.lane()
            outcomes = await lane.process(payment(0, "a"), payment(1, "b"), payment(2, "c"), payment(3, "b"))

            assert outcomes == [Applied(), Retry(timedelta(seconds=7))]
            assert await shop.payments() == ["a"]
            assert await shop.rows("SELECT message_id FROM idem.inbox") == ["a"]
            assert await shop.rows("SELECT next_offset FROM idem.progress") == [1]
            early += [1, 1]
            assert await lane.process(payment(1, "b"), payment(2, "c"), payment(3, "b")) == [Applied(), Applied(), Skipped()]
            assert await shop.payments() == ["a", "b", "c"]

    async def test_an_error_named_in_retry_on_is_retried_and_never_counted(self, dsn):
        calls = []

        async def handler(request, tx):
            calls.append(1)
            if len(calls) < 10:
                raise ConnectionRefusedError
            await insert(request, tx)

        policy = RetryPolicy(retry_on=(ConnectionError,), first_delay=timedelta(milliseconds=1))
        async with open_shop(dsn, handler, retry=policy) as shop:
            lane = await shop.lane()
            for _ in range(9):
                outcomes = await lane.process(payment(0))
                assert isinstance(outcomes[0], Retry)
            assert await lane.process(payment(0)) == [Applied()]


class TestTransaction:
    @pytest.mark.parametrize("raw", ["COMMIT", "ROLLBACK", "SELECT 1; COMMIT"])
    async def test_b9_a_handler_cannot_end_the_transaction(self, dsn, raw):
        async def handler(request, tx):
            await insert(request, tx)
            if request.payment_id == "ends":
                await tx.connection.execute(raw)

        async with open_shop(dsn, handler) as shop:
            outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "ends"), payment(2, "c"))

            assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
            assert TransactionControlRefused.__name__ in outcomes[1].error
            assert await shop.payments() == ["a", "c"]

    @pytest.mark.parametrize("write", [insert, insert_later])
    @pytest.mark.parametrize("raw", ["COMMIT", "ROLLBACK"])
    async def test_b9_what_gets_past_the_guard_commits_nothing(self, dsn, raw, write):
        """The handler reaches the driver's own connection; the trigger refuses the commit, the seal the rest; nothing is sent between."""
        fired = []

        async def handler(request, tx):
            await write(request, tx)
            tx.after_commit(fired.append, request.payment_id)
            if request.payment_id == "ends":
                try:
                    await tx._unit.connection.raw.execute(raw)
                except asyncpg.PostgresError:
                    pass

        async with open_shop(dsn, handler) as shop:
            outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "ends"), payment(2, "c"))

            assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
            assert await shop.payments() == ["a", "c"]
            assert fired == ["a", "c"]

    async def test_a_tx_that_has_ended_refuses_everything(self, dsn):
        kept = []

        async def handler(request, tx):
            kept.append((tx, tx.connection))

        async with open_shop(dsn, handler) as shop:
            await (await shop.lane()).process(payment(0))
        tx, connection = kept[0]
        for use in (lambda: tx.publish("t", value=None), lambda: tx.defer("SELECT 1"), lambda: tx.after_commit(print)):
            with pytest.raises(TransactionEnded, match="inside the handler"):
                use()
        with pytest.raises(TransactionEnded):
            await connection.fetch("SELECT 1")

    @pytest.mark.parametrize("lone", [False, True])
    async def test_an_item_publishes_nothing_after_its_call(self, dsn, lone):
        kept = []

        async def handler(items, tx):
            if lone and len(items) > 1:
                raise ZeroDivisionError
            kept.extend(items)

        async with open_shop(dsn, handler, batch=True) as shop:
            await (await shop.lane()).process(payment(0), payment(1))
        assert len(kept) == 2
        for item in kept:
            with pytest.raises(TransactionEnded, match="inside the handler"):
                item.publish("t", value=None)

    async def test_a_savepoint_undoes_statements_writes_records_and_registrations(self, dsn):
        fired = []

        async def handler(request, tx):
            tx.defer("INSERT INTO payment VALUES ('before', 'x', 1)")
            with pytest.raises(ZeroDivisionError):
                async with tx.savepoint():
                    await insert(request, tx)
                    tx.defer("INSERT INTO payment VALUES ('inside', 'x', 1)")
                    tx.publish("t", value=b"inside")
                    tx.after_commit(fired.append, "inside")
                    raise ZeroDivisionError
            with pytest.raises(asyncpg.PostgresError):
                async with tx.connection.transaction():
                    await tx.execute("SELECT 1 / 0")
            tx.publish("t", value=b"after")
            tx.after_commit(fired.append, "after")

        async with open_shop(dsn, handler) as shop:
            assert await (await shop.lane()).process(payment(0)) == [Applied()]
            assert await shop.payments() == ["before"]
            assert await shop.rows("SELECT value FROM idem.outbox") == [b"after"]
            assert fired == ["after"]

    async def test_awaited_statements_see_what_was_deferred_before(self, dsn):
        seen = []

        async def handler(request, tx):
            seen.append(await tx.fetchval("SELECT count(*) FROM payment"))
            await insert_later(request, tx)

        async with open_shop(dsn, handler) as shop:
            await (await shop.lane()).process(payment(0), payment(1), payment(2))

        assert seen == [0, 1, 2]

    async def test_before_commit_may_stop_the_commit(self, dsn):
        async def handler(request, tx):
            await insert(request, tx)
            if request.payment_id == "bad":
                tx.before_commit(lambda: 1 / 0)

        async with open_shop(dsn, handler) as shop:
            outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "bad"), payment(2, "c"))

            assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
            assert await shop.payments() == ["a", "c"]

    async def test_b20_functions_fire_once_and_only_for_what_is_committed(self, dsn):
        fired = []

        async def handler(request, tx):
            tx.after_commit(fired.append, ("commit", request.payment_id))
            tx.after_rollback(fired.append, ("rollback", request.payment_id))
            await insert(request, tx)
            if request.payment_id == "bad":
                raise ValueError

        async with open_shop(dsn, handler) as shop:
            await (await shop.lane()).process(payment(0, "a"), payment(1, "bad"), payment(2, "c"))

        assert [entry for entry in fired if entry[0] == "commit"] == [("commit", "a"), ("commit", "c")]
        assert fired.count(("rollback", "bad")) == 3
        assert fired.count(("rollback", "c")) == 0

    async def test_b20_functions_of_a_batch_fire_when_it_is_undone(self, dsn):
        fired = []

        async def handler(items, tx):
            ids = [item.payload.payment_id for item in items]
            tx.after_rollback(fired.append, ids)
            if "bad" in ids:
                raise ValueError

        async with open_shop(dsn, handler, batch=True, retry=RetryPolicy(attempts=1)) as shop:
            await (await shop.lane()).process(payment(0, "a"), payment(1, "bad"))

        # Together with its neighbour, in a half of its own, and alone.
        assert fired == [["a", "bad"], ["bad"], ["bad"]]


async def test_e4_a_row_of_an_older_fingerprint_version_is_compared_under_that_version(dsn):
    old = Fingerprint("account", "amount", version=1)
    new = Fingerprint("account", "amount", "note", version=2, previous=[old])
    async with open_shop(dsn, source=checkout(fingerprint=old)) as before:
        await (await before.lane()).process(payment(0, "a"), payment(1, "b"))
    async with open_shop(dsn, source=checkout(fingerprint=new)) as after:
        outcomes = await (await after.lane()).process(payment(2, "a", note="new field"), payment(3, "b", amount=9), payment(4, "c"))
        assert [type(outcome) for outcome in outcomes] == [Skipped, Quarantined, Applied]
        assert outcomes[1].fields == ("amount",)
    async with open_shop(dsn, source=checkout(fingerprint=old)) as back:
        lane = await back.lane()
        assert await lane.process(payment(5, "c", amount=5)) == [Skipped()]
        assert await back.rows('SELECT state, reason FROM idem.quarantine WHERE "offset" = 5') == [("closed", "unverified")]


async def test_e10_two_handlers_and_two_tenants_do_not_eat_each_others_claims(dsn):
    from consumer_idem.inbox.locate import header

    source = checkout(tenant=header("tenant"))
    async with open_shop(dsn, source=source) as shop:
        outcomes = await (await shop.lane()).process(
            payment(0, "x", headers=[("tenant", b"red")]), payment(1, "x", headers=[("tenant", b"blue")]), payment(2, "x")
        )

    assert [type(outcome) for outcome in outcomes] == [Applied, Applied, Quarantined]


async def test_own_consumer_loops_get_every_outcome_in_order(dsn):
    async def handler(request, tx):
        if request.payment_id == "late":
            raise RetryLater(timedelta(seconds=3))
        await insert(request, tx)

    async with open_shop(dsn, handler) as shop:
        outcomes = await shop.app.process(
            [payment(0, "a"), payment(1, "a"), replace(payment(2), value=b"?"), payment(3, "late"), payment(4)]
        )

        assert [type(outcome) for outcome in outcomes] == [Applied, Skipped, Quarantined, Retry, Retry]
        assert await shop.payments() == ["a"]
        assert await shop.rows("SELECT count(*) FROM idem.progress") == [0]


async def test_own_loops_are_told_of_a_topic_that_no_handler_reads(dsn):
    async with open_shop(dsn) as shop:
        with pytest.raises(DeclarationError, match=r"topic 'other'"):
            await shop.app.process([payment(0, topic="other")])

"""Releasing what is in quarantine: once, whoever asks, whatever fails, whatever Kafka delivers meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from consumer_idem import failpoint
from consumer_idem.app import App
from consumer_idem.consumer.release import AlreadySettled, Answer, NotNow, Order, Refused, Released
from consumer_idem.errors import RetryLater
from consumer_idem.inbox.locate import header
from consumer_idem.message import Message
from consumer_idem.outbox.record import record_id
from consumer_idem.outcome import Applied, Quarantined, Reason, Rejected, Retry, Skipped
from consumer_idem.testing.lost import LostCommit
from tests.planted import planted
from tests.proxied import through
from tests.shop import Shop, checkout, declare, insert, open_shop, payment

ANN = Order(operator="ann")
ENTRY = "SELECT state, reason, error, attempts FROM idem.quarantine ORDER BY id"
AUDIT = "SELECT action, operator, note, outcome, error FROM idem.quarantine_audit ORDER BY id"
KEYS = "SELECT message_id, status::text FROM idem.inbox ORDER BY 1"


class Moody:
    """A handler that fails as long as its mood is bad, before or after its statement."""

    def __init__(self, error: Exception | None = None, *, dirty: bool = False) -> None:
        self.error = error or ValueError("no such account")
        self.dirty = dirty
        self.calls: list[str] = []
        self.bad = True

    async def __call__(self, request: Any, tx: Any) -> None:
        self.calls.append(request.payment_id)
        if not self.dirty and self.bad:
            raise self.error
        await insert(request, tx)
        tx.publish("applied", value={"id": request.payment_id, "amount": request.amount})
        if self.bad:
            raise self.error


async def release(shop: Shop, id: int = 1, order: Order = ANN) -> Answer:
    return await (await shop.app.runtime().releaser()).release(id, order)


@asynccontextmanager
async def failed(dsn: str, handler: Any = None, *messages: Message, **options: Any) -> AsyncIterator[tuple[Shop, Moody]]:
    """A shop in which the message "a" used up its attempts and is entry 1; the handler's mood is good again."""
    handler = handler or Moody()
    async with open_shop(dsn, handler, **options) as shop:
        await (await shop.lane()).process(*(messages or [payment(0, "a")]))
        handler.calls.clear()
        handler.bad = False
        yield shop, handler


@pytest.mark.parametrize("dirty", [False, True])
async def test_a_release_applies_settles_and_publishes_in_one(dsn: str, dirty: bool) -> None:
    async with failed(dsn, Moody(dirty=dirty)) as (shop, handler):
        assert await release(shop) == Released(1, Applied())

        assert (handler.calls, await shop.payments()) == (["a"], ["a"])
        assert [(state, reason) for state, reason, *_ in await shop.rows(ENTRY)] == [("released", "attempts-used-up")]
        assert await shop.rows(KEYS) == [("a", "a")]
        [(topic, record, key_hash)] = await shop.rows("SELECT outbox.topic, outbox.message_id, key_hash FROM idem.outbox, idem.inbox")
        assert (topic, record) == ("applied", record_id(key_hash, 0, "applied", 0))
        assert await shop.rows(AUDIT) == [("release", "ann", "", "applied", "")]


async def test_a_second_release_says_what_became_of_the_entry_and_runs_nothing(dsn: str) -> None:
    async with failed(dsn) as (shop, handler):
        await release(shop)
        second = await release(shop)

        assert isinstance(second, AlreadySettled)
        assert second.state == "released"
        assert (handler.calls, await shop.payments()) == (["a"], ["a"])


async def test_of_two_operators_at_once_one_releases_and_the_other_is_told(dsn: str) -> None:
    async with failed(dsn) as (shop, handler), open_shop(dsn, handler) as other:
        answers = await asyncio.gather(*(release(one) for one in [shop, other] * 3))

        assert sorted(type(answer).__name__ for answer in answers) == ["AlreadySettled"] * 5 + ["Released"]
        assert (handler.calls, await shop.payments()) == (["a"], ["a"])


async def test_redelivery_of_the_key_during_its_release_applies_once(dsn: str) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Moody):
        async def __call__(self, request: Any, tx: Any) -> None:
            await super().__call__(request, tx)
            running.set()
            await go_on.wait()

    async with failed(dsn, Slow()) as (shop, _), open_shop(dsn) as worker:
        releasing = asyncio.create_task(release(shop))
        await running.wait()
        redelivery = asyncio.create_task((await worker.lane(1)).process(payment(7, "a", partition=1)))
        await until_locked(shop)
        go_on.set()

        assert await releasing == Released(1, Applied())
        assert await redelivery == [Skipped()]
        assert await shop.payments() == ["a"]
        assert await shop.rows('SELECT partition, "offset" FROM idem.duplicate') == [(1, 7)]


async def test_many_releases_and_redeliveries_of_many_keys_apply_each_once(dsn: str) -> None:
    ids = [f"p{n:02}" for n in range(20)]
    async with failed(dsn, None, *(payment(n, id) for n, id in enumerate(ids))) as (shop, _), open_shop(dsn) as other:
        lane = await other.lane(1)
        again = [payment(n, id, partition=1) for n, id in enumerate(reversed(ids))]
        releases = [release(one, n + 1) for n in range(20) for one in (shop, other)]
        *answers, outcomes = await asyncio.gather(*releases, lane.process(*again))

        assert outcomes == [Skipped()] * 20
        assert sum(isinstance(answer, Released) for answer in answers) == 20
        assert await shop.payments() == ids
        assert await shop.rows("SELECT DISTINCT state FROM idem.quarantine") == ["released"]


@pytest.mark.parametrize("dirty", [False, True])
async def test_a_handler_that_fails_again_leaves_the_entry_open_and_the_key_taken(dsn: str, dirty: bool) -> None:
    async with failed(dsn, Moody(dirty=dirty)) as (shop, handler):
        before = (await shop.rows("SELECT attempts FROM idem.quarantine"))[0]
        handler.bad, handler.error = True, ValueError("still none")
        answer = await release(shop)

        assert isinstance(answer, Released)
        assert isinstance(answer.outcome, Quarantined)
        [(state, reason, error, attempts)] = await shop.rows(ENTRY)
        assert (state, reason, error) == ("open", "attempts-used-up", "ValueError: still none")
        assert attempts > before
        assert await shop.rows(KEYS) == [("a", "q")]
        assert await (await shop.lane(1)).process(payment(0, "a", partition=1)) == [Skipped()]
        assert await shop.payments() == []
        assert await shop.rows("SELECT count(*) FROM idem.outbox") == [0]
        assert await shop.rows(AUDIT) == [("release", "ann", "", "quarantined", "ValueError: still none")]
        handler.bad = False
        assert await release(shop) == Released(1, Applied())


@pytest.mark.parametrize("dirty", [False, True])
async def test_a_refusal_settles_the_entry_and_is_remembered(dsn: str, dirty: bool) -> None:
    async with failed(dsn, Moody(dirty=dirty)) as (shop, handler):
        handler.bad, handler.error = True, Rejected("closed-account")

        assert await release(shop) == Released(1, Rejected("closed-account"))
        assert await shop.rows(KEYS) == [("a", "r")]
        assert await (await shop.lane(1)).process(payment(0, "a", partition=1)) == [Skipped(Rejected("closed-account"))]
        assert await shop.payments() == []


async def test_a_retry_leaves_the_entry_open_and_counts_nothing(dsn: str) -> None:
    async with failed(dsn) as (shop, handler):
        handler.bad, handler.error = True, RetryLater(timedelta(seconds=5))
        answer = await release(shop)

        assert answer == Released(1, Retry(timedelta(seconds=5)))
        assert await shop.rows("SELECT state, attempts FROM idem.quarantine") == [("open", 3)]


@pytest.mark.parametrize("raw", ["COMMIT", "ROLLBACK"])
async def test_b9_a_handler_that_ends_the_transaction_of_a_release_changes_nothing(dsn: str, raw: str) -> None:
    async def ends(request: Any, tx: Any) -> None:
        await insert(request, tx)
        try:
            await tx._unit.connection.raw.execute(raw)
        except Exception:
            pass

    async with failed(dsn):
        pass
    async with open_shop(dsn, ends) as shop:
        answer = await release(shop)

        assert isinstance(answer, Released)
        assert isinstance(answer.outcome, Quarantined)
        assert await shop.payments() == []
        assert [row[0] for row in await shop.rows(ENTRY)] == ["open"]
        assert await shop.rows(KEYS) == [("a", "q")]


class TestWithoutKey:
    """Entries whose message had no key, or no handler: a new deploy can read them, and they claim their key like any other."""

    @asynccontextmanager
    async def unrouted(self, dsn: str) -> AsyncIterator[Shop]:
        """Entry 1 is a payment of a type that no handler took; the handler takes it now."""
        typed = [("ce_type", b"payment.corrected")]
        async with open_shop(dsn, insert, type="payment.requested") as before:
            await (await before.lane()).process(payment(0, "a", headers=typed))
        async with open_shop(dsn, insert) as shop:
            yield shop

    async def test_a_message_that_a_handler_takes_now_is_applied(self, dsn: str) -> None:
        async with self.unrouted(dsn) as shop:
            assert await release(shop) == Released(1, Applied())
            assert await shop.payments() == ["a"]
            assert await shop.rows(KEYS) == [("a", "a")]
            assert await shop.rows("SELECT message_id FROM idem.quarantine") == ["a"]

    async def test_one_that_no_handler_takes_stays(self, dsn: str) -> None:
        async with self.unrouted(dsn):
            pass
        async with open_shop(dsn, insert, type="payment.requested") as still:
            answer = await release(still)

            assert isinstance(answer, Released)
            assert isinstance(answer.outcome, Quarantined)
            assert answer.outcome.reason == Reason.UNROUTED
            assert [row[:2] for row in await still.rows(ENTRY)] == [("open", "unrouted")]

    async def test_a_key_that_was_settled_meanwhile_is_skipped_and_closed(self, dsn: str) -> None:
        async with self.unrouted(dsn) as shop:
            await (await shop.lane(1)).process(payment(0, "a", partition=1))

            assert await release(shop) == Released(1, Skipped())
            assert await shop.payments() == ["a"]
            assert await shop.rows("SELECT state FROM idem.quarantine") == ["closed"]
            assert await shop.rows('SELECT partition, "offset" FROM idem.duplicate') == [(0, 0)]

    async def test_a_key_that_was_settled_meanwhile_with_another_content_is_a_conflict(self, dsn: str) -> None:
        async with self.unrouted(dsn) as shop:
            await (await shop.lane(1)).process(payment(0, "a", partition=1, amount=9))
            answer = await release(shop)

            assert isinstance(answer, Released)
            assert isinstance(answer.outcome, Quarantined)
            assert await shop.rows("SELECT state, reason, fields, message_id FROM idem.quarantine") == [
                ("open", "conflict", ["amount"], "a")
            ]
            assert isinstance(await release(shop), Refused)
            assert await shop.rows("SELECT amount FROM payment") == [9]

    async def test_the_claim_of_another_quarantined_copy_is_not_given_up(self, dsn: str) -> None:
        await self.joins_another_entry(dsn)

    async def test_giving_up_the_claim_of_another_copy_is_caught(self, dsn: str) -> None:
        plant = planted(
            "inbox",
            "free",
            'AND topic = $2::int AND partition = $3::int AND "offset" = $4::bigint',
            "AND ($2::int, $3::int, $4::bigint) IS NOT NULL",
        )
        with plant, pytest.raises(AssertionError):
            await self.joins_another_entry(dsn)

    async def joins_another_entry(self, dsn: str) -> None:
        async with self.unrouted(dsn):
            pass
        async with failed(dsn, None, payment(0, "a", partition=1)) as (shop, handler):
            assert await release(shop) == Released(1, Skipped())
            assert handler.calls == []
            assert await shop.rows("SELECT state FROM idem.quarantine ORDER BY id") == ["closed", "open"]
            assert await release(shop, 2) == Released(2, Applied())
            assert await shop.payments() == ["a"]

    async def test_a_handler_that_fails_takes_no_key(self, dsn: str) -> None:
        async with self.unrouted(dsn):
            pass
        handler = Moody()
        async with open_shop(dsn, handler) as shop:
            await release(shop)
            assert await shop.rows(KEYS) == []
            assert [row[:3] for row in await shop.rows(ENTRY)] == [("open", "unrouted", "ValueError: no such account")]
            handler.bad = False
            assert await release(shop) == Released(1, Applied())

    async def test_an_unreadable_one_is_applied_once_its_source_reads_it(self, dsn: str) -> None:
        message = replace(payment(0, "a"), headers=[("id", b"a")])
        async with open_shop(dsn, source=checkout(decode=lambda message: json.loads(message.value + b"?"))) as before:
            outcomes = await (await before.lane()).process(message)
            assert [outcome.reason for outcome in outcomes] == [Reason.UNDECODABLE]
        async with open_shop(dsn) as shop:
            assert await release(shop) == Released(1, Applied())
            assert await shop.payments() == ["a"]


class TestEdited:
    async def test_the_handler_sees_the_correction_and_the_entry_keeps_the_original(self, dsn: str) -> None:
        async with failed(dsn) as (shop, _):
            corrected = b'{"payment_id": "a", "account": "bob"}'
            answer = await release(shop, order=Order(operator="ann", note="ticket 12", edited=corrected))

            assert answer == Released(1, Applied())
            assert await shop.rows("SELECT account FROM payment") == ["bob"]
            assert await shop.rows("SELECT value FROM idem.quarantine") == [b'{"payment_id": "a"}']
            assert await shop.rows("SELECT note, edited FROM idem.quarantine_audit") == [("ticket 12", corrected)]

    async def test_the_original_sent_again_is_a_duplicate_and_the_correction_a_conflict(self, dsn: str) -> None:
        async with failed(dsn) as (shop, _):
            await release(shop, order=Order(operator="ann", note="ticket 12", edited=b'{"payment_id": "a", "account": "bob"}'))
            outcomes = await (await shop.lane(1)).process(payment(0, "a", partition=1), payment(1, "a", partition=1, account="bob"))

            assert outcomes[0] == Skipped()
            assert isinstance(outcomes[1], Quarantined)
            assert outcomes[1].fields == ("account",)
            assert await shop.payments() == ["a"]

    async def test_what_could_not_be_read_is_applied_as_corrected(self, dsn: str) -> None:
        async with open_shop(dsn) as shop:
            await (await shop.lane()).process(replace(payment(0), value=b'{"payment_id": "a"'))
            answer = await release(shop, order=Order(operator="ann", note="cut off", edited=b'{"payment_id": "a"}'))

            assert answer == Released(1, Applied())
            assert await shop.payments() == ["a"]
            assert await shop.rows("SELECT value FROM idem.quarantine") == [b'{"payment_id": "a"']

    @pytest.mark.parametrize(
        ("edited", "note", "why"),
        [(b'{"payment_id": "b"}', "ticket 12", "Keep the message id"), (b'{"payment_id": "a"}', " ", "needs a note")],
    )
    async def test_a_correction_of_the_id_or_without_a_note_is_refused(self, dsn: str, edited: bytes, note: str, why: str) -> None:
        async with failed(dsn) as (shop, handler):
            answer = await release(shop, order=Order(operator="ann", note=note, edited=edited))

            assert isinstance(answer, Refused)
            assert why in answer.why
            assert handler.calls == []

    async def test_a_correction_that_cannot_be_read_leaves_the_entry_open(self, dsn: str) -> None:
        async with failed(dsn) as (shop, _):
            answer = await release(shop, order=Order(operator="ann", note="oops", edited=b"{"))

            assert isinstance(answer, Released)
            assert isinstance(answer.outcome, Quarantined)
            assert answer.outcome.reason == Reason.UNDECODABLE
            assert [row[:2] for row in await shop.rows(ENTRY)] == [("open", "attempts-used-up")]
            assert await release(shop) == Released(1, Applied())


class TestConflict:
    NEW = Order(operator="ann", note="both are meant", new_id=True)

    @asynccontextmanager
    async def conflict(self, dsn: str, handler: Any = insert, **options: Any) -> AsyncIterator[Shop]:
        """Entry 1 conflicts with a payment that was applied."""
        headers = [("tenant", b"red")]
        async with open_shop(dsn, **options) as before:
            await (await before.lane()).process(payment(0, "a", headers=headers), payment(1, "a", amount=9, headers=headers))
        async with open_shop(dsn, handler, **options) as shop:
            yield shop

    async def test_it_is_refused_without_a_decision(self, dsn: str) -> None:
        async with self.conflict(dsn) as shop:
            answer = await release(shop)

            assert isinstance(answer, Refused)
            assert "--as new-id" in answer.why
            assert await shop.rows("SELECT amount FROM payment") == [1]
            assert await shop.rows(AUDIT) == []

    async def test_it_is_handled_under_an_id_of_its_own(self, dsn: str) -> None:
        async with self.conflict(dsn) as shop:
            assert await release(shop, order=self.NEW) == Released(1, Applied(), new_id="a#released-1")
            assert isinstance(await release(shop, order=self.NEW), AlreadySettled)

            assert await shop.rows("SELECT amount FROM payment ORDER BY 1") == [1, 9]
            assert await shop.rows(KEYS) == [("a", "a"), ("a#released-1", "a")]
            assert await shop.rows("SELECT operator, note, new_id FROM idem.quarantine_audit") == [
                ("ann", "both are meant", "a#released-1")
            ]

    async def test_it_is_found_under_its_new_id(self, dsn: str) -> None:
        from consumer_idem.history import Histories

        async with self.conflict(dsn, source=checkout(tenant=header("tenant"))) as shop:
            await release(shop, order=self.NEW)
            runtime = shop.app.runtime()
            [history] = await Histories(runtime.database, "idem").find(runtime.handlers[0], ["a#released-1"], "red")

            assert history.settled is not None
            assert (history.settled["status"], history.settled["offset"]) == ("a", 1)

    async def test_a_failure_takes_no_key_and_the_conflict_stays(self, dsn: str) -> None:
        handler = Moody()
        async with self.conflict(dsn, handler) as shop:
            await release(shop, order=self.NEW)
            assert await shop.rows(KEYS) == [("a", "a")]
            assert [row[:3] for row in await shop.rows(ENTRY)] == [("open", "conflict", "ValueError: no such account")]
            handler.bad = False
            assert await release(shop, order=self.NEW) == Released(1, Applied(), new_id="a#released-1")

    async def test_two_operators_at_once_apply_it_once(self, dsn: str) -> None:
        async with self.conflict(dsn) as shop, open_shop(dsn) as other:
            answers = await asyncio.gather(*(release(one, order=self.NEW) for one in [shop, other] * 2))

            assert sum(isinstance(answer, Released) for answer in answers) == 1
            assert await shop.rows("SELECT amount FROM payment ORDER BY 1") == [1, 9]

    async def test_a_new_id_is_for_conflicts_only_and_needs_a_note(self, dsn: str) -> None:
        async with failed(dsn) as (shop, _):
            assert isinstance(await release(shop, order=self.NEW), Refused)
        async with self.conflict(dsn) as shop:
            assert isinstance(await release(shop, 2, Order(operator="ann", new_id=True)), Refused)
            assert await shop.rows("SELECT count(*) FROM payment WHERE amount = 9") == [0]


async def test_an_entry_of_another_group_or_handler_is_refused(dsn: str) -> None:
    async with failed(dsn):
        pass
    renamed = declare(insert, name="other-payment")
    renamed.runtime({"database": dsn})
    elsewhere = App(group="elsewhere")
    elsewhere.handler("payments.requested", source=checkout(), name="elsewhere")(insert)
    elsewhere.runtime({"database": dsn})
    for app, why in ((renamed, "apply-payment is not declared"), (elsewhere, "belongs to group shop")):
        await app.runtime().open(new_scope=True)
        async with open_shop(dsn, app=app) as shop:
            answer = await release(shop)

            assert isinstance(answer, Refused)
            assert why in answer.why
            assert await shop.payments() == []


async def test_an_entry_that_is_not_there_is_refused(dsn: str) -> None:
    async with open_shop(dsn) as shop:
        assert await release(shop, 99) == Refused(99, "There is no such entry.")


async def until_locked(shop: Shop) -> None:
    async with asyncio.timeout(10):
        while not await shop.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"):
            await asyncio.sleep(0.01)


class TestTrouble:
    """A release that is cut off loses nothing and doubles nothing."""

    @pytest.mark.parametrize(
        "point", ["begin.after", "claim.after", "handler.before", "handlers.after", "flush.after", "settle.after", "seal.after"]
    )
    async def test_g2_a_release_that_is_cut_off_leaves_everything_as_it_was(self, dsn: str, point: str) -> None:
        async with failed(dsn) as (shop, _):
            failpoint.active.update(failpoint.parse(f"{point}=cancel"))
            try:
                with pytest.raises(asyncio.CancelledError):
                    await release(shop)
            finally:
                failpoint.active.clear()

            assert await shop.rows(KEYS) == [("a", "q")]
            assert [row[0] for row in await shop.rows(ENTRY)] == ["open"]
            assert await shop.payments() == []
            assert await release(shop) == Released(1, Applied())
            assert await shop.payments() == ["a"]

    async def test_g2_a_release_that_is_cut_off_behind_its_commit_is_done(self, dsn: str) -> None:
        async with failed(dsn) as (shop, _):
            failpoint.active.update(failpoint.parse("commit.after=cancel"))
            try:
                with pytest.raises(asyncio.CancelledError):
                    await release(shop)
            finally:
                failpoint.active.clear()

            assert isinstance(await release(shop), AlreadySettled)
            assert await shop.payments() == ["a"]

    @pytest.mark.parametrize("lost", ["answer", "request"])
    async def test_b10_a_lost_commit_is_found_out_and_its_functions_fire_once(self, dsn: str, lost: Any) -> None:
        fired: list[str] = []

        class Telling(Moody):
            async def __call__(self, request: Any, tx: Any) -> None:
                if not self.bad and not trigger.fired:
                    # From here on, the next COMMIT is the release's own.
                    trigger.arm()
                tx.after_commit(fired.append, "commit")
                tx.after_rollback(fired.append, "rollback")
                await super().__call__(request, tx)

        trigger = LostCommit(lost)
        proxy, address = through(dsn, trigger)
        async with failed(dsn, Telling()) as (_, handler), proxy, open_shop(address, handler) as shop:
            fired.clear()
            answer = await release(shop)
            shop.dsn = dsn

            assert trigger.fired == 1
            assert answer == Released(1, Applied())
            assert fired == (["commit"] if lost == "answer" else ["rollback", "commit"])
            assert await shop.payments() == ["a"]
            assert [row[0] for row in await shop.rows(ENTRY)] == ["released"]

    async def test_an_entry_that_somebody_else_holds_is_waited_for_and_not_counted(self, dsn: str) -> None:
        import asyncpg

        async with failed(dsn) as (shop, handler):
            connection = await asyncpg.connect(dsn)
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("SELECT FROM idem.quarantine FOR UPDATE")
            releasing = asyncio.create_task(release(shop))
            await until_locked(shop)
            assert handler.calls == []
            await transaction.rollback()
            await connection.close()

            assert await releasing == Released(1, Applied())

    async def test_without_a_database_it_is_said_and_nothing_is_lost(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("consumer_idem.consumer.release._TRIES", 2)
        proxy, address = through(dsn)
        async with failed(dsn) as (_, handler), proxy, open_shop(address, handler) as shop:
            await shop.app.runtime().releaser()
            proxy.refuse()
            proxy.cut()
            assert isinstance(await release(shop), NotNow)
            await proxy.accept()
            shop.dsn = dsn

            assert [row[0] for row in await shop.rows(ENTRY)] == ["open"]
            assert await release(shop) == Released(1, Applied())


class TestPlanted:
    """Bugs on purpose, which the tests of this file would find."""

    async def releases_once(self, dsn: str) -> None:
        async with failed(dsn) as (shop, _):
            first, second = await release(shop), await release(shop)

            assert first == Released(1, Applied())
            assert isinstance(second, AlreadySettled)
            assert await shop.payments() == ["a"]

    async def test_the_scenario_holds(self, dsn: str) -> None:
        await self.releases_once(dsn)

    @pytest.mark.parametrize(
        ("part", "name", "old", "new"),
        [
            ("quarantine", "settle", "SET state = $3,", "SET state = CASE WHEN $3::text IS NULL THEN $3 ELSE state END,"),
            ("quarantine", "settle", "AND state = 'open'", "AND state <> 'open'"),
            ("inbox", "free", "AND status = 'q'", "AND status = 'never'"),
        ],
        ids=["the entry stays open", "the seal finds no row", "the key is not given up"],
    )
    async def test_a_release_that_forgets_the_entry_or_its_key_is_caught(self, dsn: str, part: str, name: str, old: str, new: str) -> None:
        with planted(part, name, old, new), pytest.raises(AssertionError):
            await self.releases_once(dsn)

    async def test_a_release_that_would_apply_again_what_is_applied_is_caught(self, dsn: str) -> None:
        """Both guards gone: the entry stays open, and the claim of an applied copy is given up."""
        forgets = planted("quarantine", "settle", "SET state = $3,", "SET state = CASE WHEN $3::text IS NULL THEN $3 ELSE state END,")
        async with failed(dsn) as (shop, _):
            with forgets:
                await release(shop)
                again = await release(shop)
            assert again == Released(1, Skipped())
            assert await shop.payments() == ["a"]
            with planted("inbox", "free", "AND status = 'q'", ""):
                await release(shop)
            assert await shop.payments() == ["a", "a"]

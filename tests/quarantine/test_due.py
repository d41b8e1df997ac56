"""`release_on`: errors that later messages mend. The partition goes on, and the entry is released by itself when its time comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from consumer_idem import failpoint
from consumer_idem.consumer.handler import RetryPolicy
from consumer_idem.consumer.releasing import Releasing
from consumer_idem.outcome import Applied, Quarantined, Reason, Skipped
from consumer_idem.testing.waiting import eventually
from tests.planted import planted
from tests.shop import Shop, insert, open_shop, payment

SOON = RetryPolicy(release_on=(LookupError,), release_after=timedelta(seconds=10), max_release_after=timedelta(seconds=30), releases=4)
WAIT = "SELECT extract(epoch FROM release_at - now())::float FROM idem.quarantine"
COME = "UPDATE idem.quarantine SET release_at = now() WHERE release_at IS NOT NULL"


class NeedsAccount:
    """A payment whose account does not exist yet, found out before its statement or after it."""

    def __init__(self, *, dirty: bool = False) -> None:
        self.dirty = dirty
        self.accounts = {"alice"}
        self.calls: list[str] = []

    async def __call__(self, request: Any, tx: Any) -> None:
        self.calls.append(request.payment_id)
        if not self.dirty:
            self._find(request.account)
        await insert(request, tx)
        self._find(request.account)

    def _find(self, account: str) -> None:
        if account not in self.accounts:
            raise LookupError(f"no account {account}")


@asynccontextmanager
async def waiting(dsn: str, *, dirty: bool = False, policy: RetryPolicy = SOON) -> AsyncIterator[tuple[Shop, NeedsAccount]]:
    """A shop in which payment "b" waits for the account of bob."""
    handler = NeedsAccount(dirty=dirty)
    async with open_shop(dsn, handler, retry=policy) as shop:
        outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "b", account="bob"), payment(2, "c"))
        assert outcomes == [Applied(), Quarantined(Reason.NOT_YET, "LookupError: no account bob", (), policy.release_after), Applied()]
        yield shop, handler


async def run_once(shop: Shop) -> int:
    return await (await shop.app.runtime().releaser()).run_once()


@pytest.mark.parametrize("dirty", [False, True])
async def test_the_partition_goes_on_and_the_entry_waits(dsn: str, dirty: bool) -> None:
    async with waiting(dsn, dirty=dirty) as (shop, _):
        assert await shop.payments() == ["a", "c"]
        # What had sent statements is called once more, alone, to be judged.
        calls = 2 if dirty else 1
        assert await shop.rows("SELECT state, reason, attempts FROM idem.quarantine") == [("open", "not-yet", calls)]
        [wait] = await shop.rows(WAIT)
        assert 0 < wait <= 10
        assert await run_once(shop) == 0


@pytest.mark.parametrize("dirty", [False, True])
async def test_it_is_released_by_itself_when_its_time_has_come(dsn: str, dirty: bool) -> None:
    async with waiting(dsn, dirty=dirty) as (shop, handler):
        handler.accounts.add("bob")
        await shop.rows(COME)

        assert await run_once(shop) == 1
        assert await run_once(shop) == 0
        assert await shop.payments() == ["a", "b", "c"]
        assert await shop.rows("SELECT state, release_at FROM idem.quarantine") == [("released", None)]
        assert await shop.rows("SELECT operator, outcome FROM idem.quarantine_audit") == [("worker", "applied")]
        assert await (await shop.lane(1)).process(payment(0, "b", partition=1, account="bob")) == [Skipped()]


async def test_with_each_failure_it_waits_longer_up_to_a_limit_and_in_the_end_for_a_person(dsn: str) -> None:
    async with waiting(dsn) as (shop, handler):
        waits = []
        for _ in range(SOON.releases):
            await shop.rows(COME)
            assert await run_once(shop) == 1
            waits += await shop.rows(WAIT)
        await shop.rows(COME)

        assert 9 < waits[0] <= 20
        assert 14 < waits[1] <= 30
        assert 14 < waits[2] <= 30
        assert waits[3] is None
        assert await run_once(shop) == 0
        assert len(handler.calls) == 3 + 4
        assert await shop.rows("SELECT state, attempts, releases FROM idem.quarantine") == [("open", 5, 4)]


async def killed(dsn: str) -> None:
    async with waiting(dsn) as (shop, handler):
        handler.accounts.add("bob")
        await shop.rows(COME)
        failpoint.active.update(failpoint.parse("handler.before=cancel"))
        try:
            with pytest.raises(asyncio.CancelledError):
                await run_once(shop)
        finally:
            failpoint.active.clear()

        assert await run_once(shop) == 0
        assert await shop.rows("SELECT state, releases FROM idem.quarantine") == [("open", 1)]
        await shop.rows(COME)
        assert await run_once(shop) == 1
        assert await shop.payments() == ["a", "b", "c"]


async def test_g2_a_release_that_kills_its_worker_is_counted_and_put_off(dsn: str) -> None:
    await killed(dsn)


async def test_an_entry_that_is_not_put_off_before_it_is_released_is_caught(dsn: str) -> None:
    with planted("quarantine", "due", "statement_timestamp() + least", "statement_timestamp() - least"), pytest.raises(AssertionError):
        await killed(dsn)


async def test_of_several_workers_one_releases_it(dsn: str) -> None:
    async with waiting(dsn) as (shop, handler), open_shop(dsn, handler, retry=SOON) as other:
        handler.accounts.add("bob")
        handler.calls.clear()
        await shop.rows(COME)
        done = await asyncio.gather(*(run_once(one) for one in [shop, other] * 4))

        assert sum(done) == 1
        assert (handler.calls, await shop.payments()) == (["b"], ["a", "b", "c"])


async def test_it_waits_as_lanes_do_while_the_outbox_is_too_full(dsn: str) -> None:
    async with waiting(dsn) as (shop, handler):
        runtime = shop.app.runtime()
        handler.accounts.add("bob")
        handler.calls.clear()
        await shop.rows(COME)
        await shop.rows(
            "INSERT INTO idem.outbox (message_id, shard, topic, source, created_at) "
            "VALUES (gen_random_uuid(), 0, 't', 's', now() - interval '1 day')"
        )
        asked: list[bool] = []

        async def paused() -> bool:
            asked.append(await runtime._paused())
            return asked[-1]

        releasing = Releasing(await runtime.releaser(), drain=timedelta(seconds=5), paused=paused)
        await eventually(lambda: len(asked) > 1)
        assert (asked[0], handler.calls) == (True, [])
        await shop.rows("DELETE FROM idem.outbox")
        await eventually(lambda: handler.calls == ["b"])
        await releasing.stop()

    assert asked[-1] is False


async def test_a_person_may_release_it_before_its_time(dsn: str) -> None:
    from consumer_idem.consumer.release import Order, Released

    async with waiting(dsn) as (shop, handler):
        handler.accounts.add("bob")

        assert await (await shop.app.runtime().releaser()).release(1, Order(operator="ann")) == Released(1, Applied())
        await shop.rows(COME)
        assert await run_once(shop) == 0
        assert await shop.payments() == ["a", "b", "c"]


async def test_a_batch_handler_may_put_off_a_message_of_its(dsn: str) -> None:
    async def handler(items: Any, tx: Any) -> None:
        for item in items:
            await insert(item.payload, tx)
            if item.payload.account == "bob":
                raise LookupError("no account bob")

    async with open_shop(dsn, handler, batch=True, retry=SOON) as shop:
        outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "b", account="bob"), payment(2, "c"))

        assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
        assert await shop.payments() == ["a", "c"]
        assert await shop.rows("SELECT reason FROM idem.quarantine WHERE release_at > now()") == ["not-yet"]


@pytest.mark.parametrize("dirty", [False, True])
async def test_release_on_goes_before_the_other_lists(dsn: str, dirty: bool) -> None:
    policy = replace(SOON, retry_on=(LookupError,), quarantine_on=(Exception,))
    async with waiting(dsn, dirty=dirty, policy=policy) as (shop, _):
        assert await shop.rows("SELECT reason FROM idem.quarantine WHERE release_at > now()") == ["not-yet"]


async def test_a_release_that_does_not_end_is_undone_when_the_worker_stops(dsn: str) -> None:
    async with waiting(dsn) as (shop, _):
        await shop.rows(COME)
    running = asyncio.Event()

    async def hangs(request: Any, tx: Any) -> None:
        await insert(request, tx)
        running.set()
        await asyncio.Event().wait()

    async with open_shop(dsn, hangs, retry=SOON) as shop:
        releasing = Releasing(await shop.app.runtime().releaser(), drain=timedelta(milliseconds=100), paused=shop.app.runtime()._paused)
        await asyncio.wait_for(running.wait(), 10)
        await asyncio.wait_for(releasing.stop(), 10)

        assert await shop.payments() == ["a", "c"]
        assert await shop.rows("SELECT state, releases FROM idem.quarantine") == [("open", 1)]

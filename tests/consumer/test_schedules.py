"""Random schedules: whatever handlers do, whatever commits are lost and wherever workers are cut off, the books balance."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from consumer_idem.errors import ConsumerIdemError, RetryLater
from consumer_idem.outcome import Rejected, Retry
from consumer_idem.testing.lost import LostCommit
from tests.planted import planted
from tests.proxied import through
from tests.shop import Lanelet, insert, insert_later, open_shop, payment

LENGTH = 24
BOOKS = """
SELECT inbox.message_id, inbox.status::text,
       (SELECT count(*) FROM payment WHERE id = inbox.message_id),
       (SELECT count(*) FROM idem.outbox WHERE convert_from(value, 'utf8') = inbox.message_id),
       (SELECT count(*) FROM idem.quarantine WHERE message_id = inbox.message_id AND reason <> 'conflict')
FROM idem.inbox
"""


class Shopkeeper:
    """A handler whose conduct hangs on the payment alone, save that some wait once or twice."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fired: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    async def __call__(self, request: Any, tx: Any) -> Rejected | None:
        conduct, id = request.note, request.payment_id
        tx.after_commit(self.fired.update, [id])
        tx.publish("out", key="k", value=id)
        if conduct == "wait" and self.waits[id] < 2:
            self.waits[id] += 1
            if self.random.random() < 0.5:
                await insert(request, tx)
            raise RetryLater
        if conduct == "clean":
            raise ValueError
        await (insert_later if self.random.random() < 0.5 else insert)(request, tx)
        if conduct == "dirty":
            await tx.execute("SELECT 1")
            raise ValueError
        if conduct == "swallow":
            try:
                await tx.execute("SELECT 1 / 0")
            except Exception:
                return None
        if conduct == "refuse":
            raise Rejected("no")
        return Rejected("kept") if conduct == "return" else None


CONDUCTS = ["good"] * 8 + ["wait"] * 3 + ["clean", "dirty", "swallow", "refuse", "return"]


def partition_of(number: int, conducts: dict[str, str], chance: random.Random) -> list[Any]:
    """Messages of which many are copies of each other, also in the other partition, and some conflict."""
    ids = [f"m{chance.randrange(LENGTH)}" for _ in range(LENGTH)]
    return [
        payment(offset, id, partition=number, note=conducts[id], amount=1 if chance.random() < 0.9 else 2) for offset, id in enumerate(ids)
    ]


class Worker:
    """A lane that is driven to its end: begun anew whenever it fails or is cut off at a random step."""

    def __init__(self, shop: Any, messages: list[Any], chance: random.Random, cuts: bool) -> None:
        self.shop, self.messages, self.chance, self.cuts = shop, messages, chance, cuts

    async def run(self) -> None:
        while True:
            task = asyncio.ensure_future(self._life())
            if self.cuts:
                await self._cut(task)
            try:
                await task
                return
            except (ConsumerIdemError, asyncio.CancelledError):
                continue

    async def _cut(self, task: "asyncio.Future[None]") -> None:
        """Let it come some steps far, then cancel it."""
        steps = self.chance.randrange(20, 1200)
        while steps and not task.done():
            steps -= 1
            await asyncio.sleep(0)
        self.cuts = self.chance.random() < 0.9
        task.cancel()

    async def _life(self) -> None:
        lane: Lanelet = await self.shop.lane(self.messages[0].partition)
        done = lane.seal.watermark
        while done < LENGTH:
            outcomes = await lane.process(*self.messages[done : done + self.chance.randrange(1, 9)])
            done += sum(not isinstance(outcome, Retry) for outcome in outcomes)


async def play(dsn: str, seed: int, *, cuts: bool, workers: int = 2) -> None:
    chance = random.Random(seed)
    keeper, trigger = Shopkeeper(seed), LostCommit(chance.choice(["answer", "request"]))
    conducts = {f"m{n}": chance.choice(CONDUCTS) for n in range(LENGTH)}
    proxy, address = through(dsn, trigger)
    async with proxy, open_shop(address, keeper) as shop:
        shop.dsn = dsn
        await shop.app.open()
        trigger.arm(20, every=chance.randrange(2, 6))
        await asyncio.gather(*(Worker(shop, partition_of(n, conducts, chance), chance, cuts).run() for n in range(workers)))
        check(await shop.rows(BOOKS), conducts, keeper.fired, exact=not cuts)
        assert await shop.rows("SELECT next_offset FROM idem.progress") == [LENGTH] * workers
        assert await shop.rows("SELECT count(*) FROM payment WHERE id NOT IN (SELECT message_id FROM idem.inbox)") == [0]


def check(books: list[Any], conducts: dict[str, str], fired: Counter[str], *, exact: bool) -> None:
    """One effect, one record and one function for what was applied or refused by return; nothing for the rest."""
    for id, status, payments, records, entries in books:
        kept = conducts[id] in ("good", "wait", "return")
        assert status == {"return": "r", "refuse": "r"}.get(conducts[id], "a" if kept else "q"), id
        assert (payments, records, entries) == (kept, kept, status == "q"), (id, conducts[id], payments, records, entries)
        # A worker that is cut off may take its functions with it.
        assert fired[id] == kept if exact else fired[id] <= kept, (id, conducts[id], fired[id])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cuts", [False, True])
async def test_the_books_balance(dsn: str, seed: int, cuts: bool) -> None:
    async with asyncio.timeout(60):
        await play(dsn, seed, cuts=cuts)


async def test_planted_claims_that_stay_upset_the_books(dsn: str) -> None:
    # One worker does the same in every run: of two, the other one may settle what this one would have lost.
    with planted("inbox", "settle", "WHERE key_hash = ANY ($2::uuid[])", "WHERE false AND key_hash = ANY ($2::uuid[])"):
        with pytest.raises(AssertionError):
            async with asyncio.timeout(60):
                await play(dsn, 2, cuts=False, workers=1)

"""What the quarantine keeps, and what is decided about entries while others are at work."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from consumer_idem.consumer.handler import RetryPolicy
from consumer_idem.consumer.release import AlreadySettled, Order, Released
from consumer_idem.errors import DatabaseFailure
from consumer_idem.history import Histories
from consumer_idem.inbox.fingerprint import Fingerprint
from consumer_idem.outcome import Applied, Quarantined, Skipped
from consumer_idem.quarantine.table import Matching, Quarantine
from consumer_idem.transaction.short import short
from tests.planted import planted
from tests.shop import Shop, checkout, insert, open_shop, payment

table = Quarantine("idem")


async def discard(shop: Shop, *ids: int) -> list[int]:
    async with short(shop.app.runtime().database, "idem") as connection:
        return list(await table.discard(connection, ids, operator="ann", note="test data"))


async def test_the_values_that_a_source_keeps_are_there_for_both_copies_of_a_conflict(dsn: str) -> None:
    source = checkout(fingerprint=Fingerprint("account", "amount", keep=["amount"]))
    async with open_shop(dsn, source=source) as shop:
        await (await shop.lane()).process(payment(0, "a", amount="1.00"), payment(1, "a", amount=2))
        runtime = shop.app.runtime()
        [history] = await Histories(runtime.database, "idem").find(runtime.handlers[0], ["a"])
        async with short(runtime.database, "idem") as connection:
            entry = await table.read(connection, 1)

    assert entry is not None
    assert history.settled is not None
    assert (history.settled["kept"], entry["kept"]) == ('{"amount": "1.00"}', '{"amount": "2"}')


async def test_many_entries_are_one_group_with_its_first_and_last_time(dsn: str) -> None:
    async with open_shop(dsn) as shop:
        await (await shop.lane()).process(payment(0, "a"), *(payment(n, "a", amount=n) for n in range(2, 7)), payment(9, ""))
        await shop.rows("UPDATE idem.quarantine SET quarantined_at = now() - id * interval '1 minute'")
        async with short(shop.app.runtime().database, "idem") as connection:
            groups = await table.group(connection, Matching())
            pages = [await table.list(connection, Matching(reason="conflict"), above=above, limit=3) for above in (0, 3)]

    assert [(group["reason"], group["handler"], group["entries"], group["first_id"]) for group in groups] == [
        ("conflict", "apply-payment", 5, 1),
        ("unidentifiable", "apply-payment", 1, 6),
    ]
    assert (groups[0]["last_at"] - groups[0]["first_at"]).total_seconds() == 4 * 60
    assert [[row["id"] for row in page] for page in pages] == [[1, 2, 3], [4, 5]]


@pytest.mark.parametrize("other", [{"value": b"?"}, {"key": b"x"}, {"headers": (("h", b"x"),)}, {"time": None}, {"value": None}], ids=str)
async def test_a_message_of_a_topic_made_anew_is_kept_beside_the_one_that_lay_at_its_offset(dsn: str, other: dict[str, Any]) -> None:
    """Where nobody can tell that the topic is another one: app.process knows no topic ids."""
    old = replace(payment(5), value=b"garbage")
    new = replace(old, **other)
    async with open_shop(dsn) as shop:
        for delivered in (old, new, new, old):
            [outcome] = await shop.app.process([delivered])
            assert isinstance(outcome, Quarantined)
        assert await shop.rows('SELECT partition, "offset", value, key FROM idem.quarantine ORDER BY id') == [
            (0, 5, message.value, message.key) for message in (old, new)
        ]


async def test_discarding_a_conflict_does_not_touch_the_key_of_an_entry_at_the_same_position(dsn: str) -> None:
    async with open_shop(dsn, fails) as shop:
        await shop.app.process([payment(0, "a")])
        await shop.app.process([payment(0, "a", amount=9)])
        assert await shop.rows("SELECT reason FROM idem.quarantine ORDER BY id") == ["attempts-used-up", "conflict"]
        assert await discard(shop, 2) == [2]
    async with open_shop(dsn) as shop:
        assert await shop.rows("SELECT status::text FROM idem.inbox") == ["q"]
        assert await (await shop.app.runtime().releaser()).release(1, Order(operator="ann")) == Released(1, Applied())


async def test_a_discarded_key_stays_taken_and_a_conflict_leaves_its_holder_alone(dsn: str) -> None:
    async with open_shop(dsn, fails) as shop:
        await (await shop.lane()).process(payment(0, "a"), payment(1, "a", amount=9))
    async with open_shop(dsn) as shop:
        assert await discard(shop, 2) == [2]
        assert await shop.rows("SELECT status::text FROM idem.inbox") == ["q"]
        assert await discard(shop, 1, 2, 99) == [1]
        assert await shop.rows("SELECT status::text FROM idem.inbox") == ["d"]
        assert await (await shop.lane(1)).process(payment(0, "a", partition=1)) == [Skipped()]


async def test_an_entry_that_is_being_released_is_not_discarded(dsn: str) -> None:
    await released_not_discarded(dsn)


async def test_deciding_without_taking_the_entry_first_is_caught(dsn: str) -> None:
    """Both then wait for what the other has changed, in the other order."""
    with planted("quarantine", "take", "FOR UPDATE", ""), pytest.raises((AssertionError, DatabaseFailure)):
        await released_not_discarded(dsn)


async def released_not_discarded(dsn: str) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Any, tx: Any) -> None:
        await insert(request, tx)
        running.set()
        await go_on.wait()

    async with open_shop(dsn, fails) as shop:
        await (await shop.lane()).process(payment(0, "a"))
    async with open_shop(dsn, slow) as shop, open_shop(dsn) as other:
        releaser = await shop.app.runtime().releaser()
        releasing = asyncio.create_task(releaser.release(1, Order(operator="ann")))
        await running.wait()
        discarding = asyncio.create_task(discard(other, 1))
        await waits_or_is_done(shop, discarding)
        go_on.set()
        answer, discarded = await releasing, await discarding

        assert (getattr(answer, "outcome", answer), discarded) == (Applied(), [])
        assert await shop.rows("SELECT state FROM idem.quarantine") == ["released"]
        assert await shop.rows("SELECT status::text FROM idem.inbox") == ["a"]


async def test_a_discarded_entry_is_not_released(dsn: str) -> None:
    async with open_shop(dsn, fails) as shop:
        await (await shop.lane()).process(payment(0, "a"))
    async with open_shop(dsn) as shop:
        await discard(shop, 1)
        answer = await (await shop.app.runtime().releaser()).release(1, Order(operator="ann"))

        assert isinstance(answer, AlreadySettled)
        assert answer.state == "discarded"
        assert await shop.payments() == []


async def fails(request: Any, tx: Any) -> None:
    raise ValueError("no such account")


async def waits_or_is_done(shop: Shop, task: "asyncio.Task[Any]") -> None:
    async with asyncio.timeout(10):
        while not task.done():
            if await shop.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"):
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("dirty", [False, True])
async def test_an_entry_says_how_often_its_handler_was_called(dsn: str, dirty: bool) -> None:
    calls = []

    async def handler(request: Any, tx: Any) -> None:
        if dirty:
            await insert(request, tx)
        if request.payment_id == "bad":
            calls.append(1)
            raise ValueError("no such account")

    async with open_shop(dsn, handler, retry=RetryPolicy(attempts=4)) as shop:
        await (await shop.lane()).process(payment(0, "bad"))

        assert await shop.rows("SELECT attempts FROM idem.quarantine") == [4]
        assert len(calls) == 4
        assert await shop.rows("SELECT * FROM idem.attempt") == []

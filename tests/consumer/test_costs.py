"""What a message costs in statements, round trips and bytes: figures that do not depend on the machine."""

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from consumer_idem import telemetry
from consumer_idem.outcome import Applied, Skipped
from tests.proxied import through
from tests.shop import Lanelet, Shop, open_shop, payment
from tests.wire import Wire

INSERT = "INSERT INTO payment VALUES ($1, $2, $3)"
BOOK = "INSERT INTO account VALUES ($2, $1) ON CONFLICT (id) DO UPDATE SET balance = account.balance + $1"
INSERT_ALL = "INSERT INTO payment SELECT * FROM unnest($1::text[], $2::text[], $3::numeric[])"


async def awaiting(request: Any, tx: Any) -> None:
    await tx.execute(INSERT, request.payment_id, request.account, request.amount)
    await tx.execute(BOOK, request.amount, request.account)
    tx.publish("out", key=request.account, value={"id": request.payment_id})


async def deferring(request: Any, tx: Any) -> None:
    tx.defer(INSERT, request.payment_id, request.account, request.amount)
    tx.defer(BOOK, request.amount, request.account, key=request.account)
    tx.publish("out", key=request.account, value={"id": request.payment_id})


async def in_batches(items: Sequence[Any], tx: Any) -> None:
    paid = [item.payload for item in items]
    await tx.execute(INSERT_ALL, [one.payment_id for one in paid], [one.account for one in paid], [one.amount for one in paid])
    for item in items:
        item.publish("out", key=item.payload.account, value={"id": item.payload.payment_id})


@dataclass
class Counted:
    """A lane behind a wire that counts. Its first batch has prepared the statements."""

    shop: Shop
    lane: Lanelet
    wire: Wire
    offset: int = 0

    def ids(self, count: int) -> list[str]:
        """Ids that were never used, as long as a UUID."""
        return [str(uuid.uuid4()) for _ in range(count)]

    async def settle(self, ids: Sequence[str]) -> list[Any]:
        """Settle one message for each id in one transaction, counting from zero."""
        first, self.offset = self.offset, self.offset + len(ids)
        messages = [payment(first + place, id) for place, id in enumerate(ids)]
        self.wire.reset()
        return await self.lane.process(*messages)


@asynccontextmanager
async def counted(dsn: str, handler: Callable[..., Any], **options: Any) -> AsyncIterator[Counted]:
    wire = Wire()
    proxy, address = through(dsn, wire)
    async with proxy, open_shop(address, handler, **options) as shop:
        made = Counted(shop, await shop.lane(), wire)
        # Every statement that is asked about is prepared: fresh messages, and duplicates of them.
        first = made.ids(3)
        await made.settle(first)
        await made.settle([*made.ids(3), *first])
        yield made


OWN = 5
"""Round trips of the library for fresh messages: begin, claim, outbox, seal, commit."""
DUPLICATES = 2
"""More of them if there are duplicates: reading who holds the keys, and noting the repetition."""


@pytest.mark.parametrize("count", [1, 50, 500])
async def test_a_handler_that_awaits_costs_its_own_round_trips_and_nothing_else_per_message(dsn: str, count: int) -> None:
    async with counted(dsn, awaiting) as place:
        outcomes = await place.settle(place.ids(count))

        assert outcomes == [Applied()] * count
        assert place.wire.round_trips == OWN + 2 * count


@pytest.mark.parametrize("count", [1, 50, 500])
async def test_a_handler_that_defers_costs_a_round_trip_per_distinct_statement_whatever_the_batch(dsn: str, count: int) -> None:
    async with counted(dsn, deferring) as place:
        outcomes = await place.settle(place.ids(count))

        assert outcomes == [Applied()] * count
        assert place.wire.round_trips == OWN + 2
        assert place.wire.statements == OWN + 2 * count


@pytest.mark.parametrize("count", [1, 50, 500])
async def test_a_batch_handler_costs_its_own_statements_whatever_the_batch(dsn: str, count: int) -> None:
    async with counted(dsn, in_batches, batch=True) as place:
        outcomes = await place.settle(place.ids(count))

        assert outcomes == [Applied()] * count
        assert place.wire.round_trips == place.wire.statements == OWN + 1


@pytest.mark.parametrize("count", [1, 50, 500])
async def test_duplicates_cost_two_round_trips_a_batch(dsn: str, count: int) -> None:
    async with counted(dsn, deferring) as place:
        seen = place.ids(count)
        await place.settle(seen)

        outcomes = await place.settle(seen)
        assert outcomes == [Skipped()] * count
        # Nothing is left to publish.
        assert place.wire.round_trips == place.wire.statements == OWN - 1 + DUPLICATES


@pytest.mark.parametrize("count", [1, 50, 500])
async def test_a_replay_claims_nothing(dsn: str, count: int) -> None:
    async with counted(dsn, deferring) as place:
        seen = place.ids(count)
        await place.settle(seen)
        await place.settle(seen)
        # Prepares the statement that looks.
        await place.settle(seen)

        outcomes = await place.settle(seen)
        assert outcomes == [Skipped()] * count
        # Begin, one look that notes the repetition as well, seal, commit.
        assert place.wire.round_trips == place.wire.statements == 4


async def test_bytes_per_message(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each message: 36 bytes of id twice, key hash, fingerprint and digests, the record's key, value and id, the two writes."""
    # Another test may have installed a tracer for good: its headers would count.
    monkeypatch.setattr(telemetry, "recording", lambda: False)
    async with counted(dsn, deferring) as place:
        few, many = await sent(place, 100), await sent(place, 500)

        per_message = [(more - less) / 400 for less, more in zip(few, many, strict=True)]
        assert per_message[0] <= 420
        # Tags and counts come back, but no row: only PostgreSQL's answers to the writes of each message.
        assert per_message[1] <= 45


async def sent(place: Counted, count: int) -> tuple[int, int]:
    await place.settle(place.ids(count))
    return place.wire.bytes_sent, place.wire.bytes_received


async def test_bytes_per_row_of_the_inbox(dsn: str) -> None:
    async with counted(dsn, deferring) as place:
        for _ in range(10):
            await place.settle(place.ids(500))

        (size,) = await place.shop.rows("SELECT pg_total_relation_size('idem.inbox')::float8 / count(*) FROM idem.inbox")
        assert size < 320

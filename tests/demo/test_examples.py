"""The examples do what they say."""

import asyncio
import importlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from consumer_idem import App, Applied, Message, Quarantined, Reason, Rejected, Skipped
from consumer_idem.testing.waiting import eventually
from tests.cli.command import ROOT
from tests.conftest import Services, make_topic


@pytest.fixture
async def shop(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to a database with the tables of the examples."""
    connection = await asyncpg.connect(dsn)
    await connection.execute((ROOT / "examples" / "tables.sql").read_text())
    yield connection
    await connection.close()


@asynccontextmanager
async def example(name: str, dsn: str) -> AsyncIterator[Any]:
    """An example with its App on this database."""
    module = importlib.import_module(f"examples.{name}")
    app: App = module.app
    app.runtime({"database": dsn})
    yield module
    await app.close()


def messages(topic: str, *values: dict[str, Any]) -> list[Message]:
    return [Message(topic=topic, partition=0, offset=offset, value=json.dumps(value).encode()) for offset, value in enumerate(values)]


def pay(id: str, account: str = "alice", amount: str = "10", **fields: str) -> dict[str, Any]:
    return {"payment_id": id, "account": account, "amount": amount, "currency": "EUR", **fields}


async def test_payments(dsn: str, shop: asyncpg.Connection) -> None:
    async with example("payments", dsn) as payments:
        outcomes = await payments.app.process(
            messages(
                "payments.requested",
                pay("1"),
                pay("2", amount="1000"),
                pay("1", amount="10.00", note="sent again"),
                pay("2", amount="1000"),
                pay("1", amount="11"),
            )
        )

    refusal = Rejected("insufficient-funds")
    assert outcomes[:4] == [Applied(), refusal, Skipped(), Skipped(refusal)]
    assert isinstance(outcomes[4], Quarantined)
    assert (outcomes[4].reason, outcomes[4].fields) == (Reason.CONFLICT, ("amount",))
    assert await shop.fetchval("SELECT balance FROM account WHERE id = 'alice'") == 90
    assert await shop.fetchval("SELECT array_agg(topic) FROM idem.outbox") == ["payments.applied"]


async def test_batch(dsn: str, shop: asyncpg.Connection) -> None:
    def deposit(id: str, account: str, amount: str) -> dict[str, Any]:
        return {"deposit_id": id, "account": account, "amount": amount}

    sent = messages(
        "deposits.booked",
        deposit("1", "alice", "5"),
        deposit("2", "carol", "7"),
        deposit("3", "alice", "6"),
        deposit("4", "alice", "0"),
        deposit("1", "alice", "5"),
    )
    async with example("batch", dsn) as batch:
        first = await batch.app.process(sent)
        again = await batch.app.process(sent)

    refusal = Rejected("nothing-to-credit")
    assert first == [Applied(), Applied(), Applied(), refusal, Skipped()]
    assert again == [Skipped(), Skipped(), Skipped(), Skipped(refusal), Skipped()]
    assert dict(await shop.fetch("SELECT id, balance FROM account")) == {"alice": 111, "bob": 50, "carol": 7}
    assert await shop.fetchval("SELECT count(*) FROM idem.outbox") == 3


async def test_own_loop(dsn: str, shop: asyncpg.Connection, services: Services) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    kafka = services.small_broker().bootstrap
    make_topic(AdminClient({"bootstrap.servers": kafka}), "payments.requested", 2, {})
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(20):
        producer.produce("payments.requested", json.dumps(pay(f"{number % 10}", amount="1")).encode(), partition=number % 3 % 2)
    assert producer.flush(30) == 0

    async with example("own_loop", dsn) as own_loop:
        loop = asyncio.create_task(own_loop.consume(kafka))
        await eventually(lambda: loop.done() or all_seen(shop), timeout=60)
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop

    assert await shop.fetchval("SELECT count(*) FROM payment") == 10
    assert await shop.fetchval("SELECT balance FROM account WHERE id = 'alice'") == 90


async def all_seen(shop: asyncpg.Connection) -> bool:
    return bool(await shop.fetchval("SELECT count(*) = 10 FROM idem.duplicate"))

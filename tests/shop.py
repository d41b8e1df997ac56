"""A shop whose effects are counted: payments in a table without a unique index, so that a double effect is seen."""

import json
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from pydantic import BaseModel

from consumer_idem.app import App
from consumer_idem.consumer.processor import Course
from consumer_idem.consumer.seal import ProgressSeal
from consumer_idem.inbox.fingerprint import Fingerprint
from consumer_idem.inbox.locate import field as in_field
from consumer_idem.inbox.progress import Progress, Slot
from consumer_idem.inbox.source import Source
from consumer_idem.message import Message
from consumer_idem.outcome import Outcome
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.transaction.short import short

TABLES = """
CREATE TABLE IF NOT EXISTS account (id text PRIMARY KEY, balance numeric NOT NULL CHECK (balance >= 0));
CREATE TABLE IF NOT EXISTS payment (id text NOT NULL, account text NOT NULL, amount numeric NOT NULL);
"""
TOPIC = "payments.requested"


class PaymentRequested(BaseModel):
    payment_id: str
    account: str = "alice"
    amount: Decimal = Decimal(1)
    note: str | None = None


def checkout(name: str = "checkout", **options: Any) -> Source[PaymentRequested]:
    options.setdefault("fingerprint", Fingerprint("account", "amount"))
    return Source(name, model=PaymentRequested, message_id=in_field("payment_id"), **options)


def payment(
    offset: int, id: str | None = None, *, partition: int = 0, topic: str = TOPIC, headers: Sequence[Any] = (), **fields: Any
) -> Message:
    """The message at `offset` that asks for payment `id`, by default one of its own."""
    value = {"payment_id": id if id is not None else f"p{offset}", **fields}
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=b"k",
        value=json.dumps(value).encode(),
        headers=headers,
        time=datetime(2026, 1, 1, tzinfo=UTC),
    )


async def insert(request: PaymentRequested, tx: Any) -> None:
    """The simplest handler: one awaited statement."""
    await tx.execute("INSERT INTO payment VALUES ($1, $2, $3)", request.payment_id, request.account, request.amount)


async def insert_later(request: PaymentRequested, tx: Any) -> None:
    """The same, deferred."""
    tx.defer("INSERT INTO payment VALUES ($1, $2, $3)", request.payment_id, request.account, request.amount)


@dataclass
class Lanelet:
    """A lane without Kafka: its progress row, its course, and messages handed in by the test."""

    shop: "Shop"
    course: Course
    seal: ProgressSeal

    async def process(self, *messages: Message) -> list[Outcome]:
        return await (await self.shop.app.runtime().open()).process(self.course, messages)


@dataclass
class Shop:
    """An App on a database of its own. Several shops on one database are several worker processes."""

    dsn: str
    app: App
    owner: UUID = field(default_factory=uuid4)
    database: AsyncpgDatabase = field(init=False)
    statements: list[str] = field(default_factory=list)

    async def lane(self, partition: int = 0, *, start: int = 0, topic: str = TOPIC) -> Lanelet:
        """Take a partition of the topic as a worker does."""
        runtime = self.app.runtime()
        await runtime.open()
        progress, slot = Progress("idem"), Slot(self.app.group, runtime._topics[topic], partition)
        async with short(runtime.database, "idem") as connection:
            taken = await progress.take(connection, slot, self.owner, 500)
            if taken is None:
                await progress.begin(connection, slot, start, self.owner, 500)
        seal = ProgressSeal(progress, slot, taken.epoch if taken else 1, self.owner, taken.next_offset if taken else start, "idem")
        return Lanelet(self, Course(seal), seal)

    async def taken_over(self) -> None:
        """Let another worker take every partition; the lanes here are not told."""
        await self.rows("UPDATE idem.progress SET epoch = epoch + 1, owner = gen_random_uuid()")

    async def rows(self, sql: str, *args: Any) -> list[Any]:
        """Run SQL on a connection of the test's own; return rows of one column as plain values."""
        connection = await asyncpg.connect(self.dsn)
        try:
            rows = await connection.fetch(sql, *args)
        finally:
            await connection.close()
        return [row[0] if len(row) == 1 else tuple(row) for row in rows]

    async def payments(self) -> list[str]:
        """The ids of the payments that took effect, sorted; twice if twice."""
        return await self.rows("SELECT id FROM payment ORDER BY id")


def declare(handler: Callable[..., Any], *, source: Source[Any] | None = None, name: str = "apply-payment", **options: Any) -> App:
    """An App of group "shop" with this one handler."""
    app = App(group="shop")
    (app.batch_handler if options.pop("batch", False) else app.handler)(TOPIC, source=source or checkout(), name=name, **options)(handler)
    return app


@asynccontextmanager
async def open_shop(dsn: str, handler: Callable[..., Any] = insert, *, app: App | None = None, **options: Any) -> Any:
    """A shop on the database at `dsn`, closed at the end."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    await connection.close()
    if app is None:
        app = declare(handler, **options)
        app.runtime({"database": dsn})
    shop = Shop(dsn, app)
    try:
        yield shop
    finally:
        await app.close()

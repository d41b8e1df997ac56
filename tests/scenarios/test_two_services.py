"""Two services in a row, each with its database, its worker and its relay, and a crash in every one of them."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.schema import install
from consumer_idem.testing.supervisor import Child, Supervisor
from consumer_idem.testing.waiting import eventually
from tests.cli.command import ROOT, clean_environment
from tests.conftest import Services, admin_of, make_topic
from tests.outbox.scene import read_topic

TIMES = {
    "CONSUMER_IDEM_SESSION_TIMEOUT": "3",
    "CONSUMER_IDEM_BATCH_SIZE": "10",
}
PAYMENTS = [{"payment_id": f"p{number:02}", "account": ("alice", "bob")[number % 2], "amount": "1.50"} for number in range(60)]
IDS = [payment["payment_id"] for payment in PAYMENTS]


@dataclass
class Service:
    """One of the two: its App, its database, and processes that come and go."""

    name: str
    dsn: str
    kafka: str
    supervisor: Supervisor
    connection: asyncpg.Connection

    async def run(self, *arguments: str, failpoint: str = "") -> Child:
        return await self._start("run", *arguments, failpoint=failpoint)

    async def relay(self, failpoint: str = "") -> Child:
        return await self._start("relay", failpoint=failpoint)

    async def _start(self, command: str, *arguments: str, failpoint: str) -> Child:
        failpoints = {"CONSUMER_IDEM_ENABLE_FAILPOINTS": "1", "CONSUMER_IDEM_FAILPOINTS": failpoint} if failpoint else {}
        env = {**clean_environment(), **TIMES, **failpoints, "CONSUMER_IDEM_DATABASE": self.dsn, "CONSUMER_IDEM_KAFKA": self.kafka}
        return await self.supervisor.start("-m", "consumer_idem.cli", command, f"examples.two_services:{self.name}", *arguments, env=env)

    async def rows(self, sql: str) -> list[Any]:
        return [row[0] if len(row) == 1 else tuple(row) for row in await self.connection.fetch(sql)]

    async def has(self, sql: str, wanted: Any) -> None:
        """Wait until the query has this value."""

        async def found() -> bool:
            return await self.rows(sql) == [wanted]

        await eventually(found, timeout=60)


async def service(name: str, dsn: str, kafka: str, supervisor: Supervisor) -> Service:
    database = AsyncpgDatabase(dsn)
    await install(database, "idem")
    await database.close()
    connection = await asyncpg.connect(dsn)
    await connection.execute((ROOT / "examples" / "tables.sql").read_text())
    return Service(name, dsn, kafka, supervisor, connection)


@pytest.fixture
async def pair(dsn: str, empty_dsn: str, services: Services) -> AsyncIterator[tuple[Service, Service]]:
    """Both services, not running yet, and their topics on a broker of their own."""
    kafka = services.kafka().bootstrap
    for name in ("payments.requested", "payments.applied", "ledger.booked"):
        make_topic(admin_of(kafka), name, 2, {})
    async with Supervisor() as supervisor:
        made = await service("payments", dsn, kafka, supervisor), await service("ledger", empty_dsn, kafka, supervisor)
        yield made
    for each in made:
        await each.connection.close()


def request(kafka: str, payments: list[dict[str, str]]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka})
    for place, payment in enumerate(payments):
        producer.produce("payments.requested", json.dumps(payment).encode(), partition=place % 2)
    assert producer.flush(30) == 0


@pytest.mark.timeout(240)
async def test_c6_g2_two_services_with_a_crash_in_each_worker_and_each_relay_take_effect_once(pair: tuple[Service, Service]) -> None:
    payments, ledger = pair
    too_much = {"payment_id": "p99", "account": "bob", "amount": "1000"}
    request(payments.kafka, [*PAYMENTS, *PAYMENTS[::3], too_much, too_much])

    # The first service dies with its transaction open, its relay with records that Kafka has and the outbox still holds.
    assert await (await payments.run("--no-relay", failpoint="seal.after=kill@2")).wait() == -9
    await payments.run("--no-relay")
    await payments.has("SELECT sum(next_offset)::int FROM idem.progress", len(PAYMENTS) + 20 + 2)
    assert await (await payments.relay(failpoint="relay.after_ack=kill@1")).wait() == -9
    acknowledged = await read_topic(payments.kafka, "payments.applied")
    still_there = {str(id) for id in await payments.rows("SELECT message_id FROM idem.outbox")}
    assert {message.id for message in acknowledged} & still_there
    await payments.relay()
    await payments.has("SELECT count(*)::int FROM idem.outbox", 0)

    # The second dies right after a commit that Kafka does not know of, and then like the first one's relay.
    assert await (await ledger.run("--no-relay", failpoint="commit.after=kill@2")).wait() == -9
    assert await (await ledger.run(failpoint="relay.after_ack=kill@1")).wait() == -9
    await ledger.run()
    published = await read_topic(payments.kafka, "payments.applied")
    await ledger.has("SELECT sum(next_offset)::int FROM idem.progress", len(published))
    await ledger.has("SELECT count(*)::int FROM idem.outbox", 0)

    booked = await read_topic(ledger.kafka, "ledger.booked")
    assert len(booked) > len({message.id for message in booked}) == len(IDS)
    assert len(published) > len({message.id for message in published}) == len(IDS)
    assert await payments.rows("SELECT id FROM payment ORDER BY id") == IDS
    assert await payments.rows("SELECT balance::text FROM account ORDER BY id") == ["55.00", "5.00"]
    assert await ledger.rows("SELECT payment_id FROM entry ORDER BY payment_id") == IDS
    assert await ledger.rows("SELECT sum(amount)::text FROM entry") == ["-90.00"]
    assert {json.loads(message.value or b"")["payment_id"] for message in booked} == set(IDS)
    assert await ledger.rows("SELECT count(*)::int FROM idem.duplicate") == [len(published) - len(IDS)]
    assert await ledger.rows("SELECT count(*)::int FROM idem.quarantine") == [0]

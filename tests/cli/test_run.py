"""`consumer-idem run` and `relay`: they work, they end when they are asked to, and say why if they cannot start."""

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from consumer_idem.testing.supervisor import Child, Supervisor
from consumer_idem.testing.waiting import eventually
from tests.cli.command import ROOT, clean_environment, command
from tests.conftest import MakeTopic
from tests.shop import TABLES, payment

pytestmark = pytest.mark.any_kafka


@dataclass
class Place:
    """Topics, a database with the shop's tables, and processes that end with the test."""

    dsn: str
    kafka: str
    requested: str
    applied: str
    supervisor: Supervisor
    connection: asyncpg.Connection

    async def start(self, *arguments: str, dsn: str | None = None) -> Child:
        env = {**clean_environment(), "CLI_TOPIC": self.requested, "CLI_APPLIED": self.applied, "CONSUMER_IDEM_DATABASE": dsn or self.dsn}
        return await self.supervisor.start("-m", "consumer_idem.cli", *arguments, "--kafka", self.kafka, env=env)

    async def run(self, *arguments: str, dsn: str | None = None) -> Child:
        return await self.start("run", "tests.cli.apps:app", "--no-relay", *arguments, dsn=dsn)

    def send(self, id: str, **fields: Any) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.kafka})
        producer.produce(self.requested, payment(0, id, **fields).value)
        assert producer.flush(30) == 0

    async def paid(self, id: str) -> bool:
        return bool(await self.connection.fetchval("SELECT count(*) FROM payment WHERE id = $1", id))


@pytest.fixture
async def place(dsn: str, kafka: str, topic: MakeTopic) -> AsyncIterator[Place]:
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    async with Supervisor() as supervisor:
        yield Place(dsn, kafka, topic(1), topic(1), supervisor, connection)
    await connection.close()


async def test_run_applies_and_ends_in_order_at_ctrl_c(place: Place) -> None:
    place.send("4711")
    worker = await place.run("--log-json")
    await eventually(lambda: place.paid("4711"), timeout=60)
    worker.interrupt()

    assert await worker.wait() == 0
    assert await place.connection.fetchval("SELECT owner FROM idem.progress") is None
    logged = [json.loads(line) for line in worker.output]
    assert {"level": "info", "message": "stopping", "signal": "SIGINT"}.items() <= logged[-1].items()


async def test_run_releases_by_itself_what_had_to_wait(place: Place) -> None:
    place.send("early", account="bob", note="needs account")
    place.send("next")
    await place.run()
    await eventually(lambda: place.paid("next"), timeout=60)
    waiting = "SELECT count(*) FROM idem.quarantine WHERE reason = 'not-yet' AND state = 'open'"
    assert await place.connection.fetchval(waiting) == 1
    await place.connection.execute("INSERT INTO account VALUES ('bob', 0)")

    await eventually(lambda: place.paid("early"), timeout=60)
    assert await place.connection.fetchval("SELECT state FROM idem.quarantine") == "released"


async def test_the_second_ctrl_c_ends_at_once(place: Place) -> None:
    place.send("4711", note="hang")
    worker = await place.run()
    await worker.line("hanging", timeout=60)
    worker.interrupt()
    await worker.line("stopping")
    worker.interrupt()

    # Asked only once, it would end with another status when the time to drain is over.
    assert await worker.wait() == 75
    assert not await place.paid("4711")


async def test_a_relay_without_an_app_publishes_and_ends_in_order(place: Place) -> None:
    place.send("4711")
    worker = await place.run()
    await eventually(lambda: place.paid("4711"), timeout=60)
    assert await place.connection.fetchval("SELECT count(*) FROM idem.outbox") == 1

    relay = await place.start("relay", "--client", "confluent")
    await eventually(lambda: emptied(place), timeout=30)
    relay.terminate()
    worker.terminate()

    assert await relay.wait() == 0
    assert await worker.wait() == 0


async def emptied(place: Place) -> bool:
    return not await place.connection.fetchval("SELECT count(*) FROM idem.outbox")


async def test_the_password_is_in_no_output(place: Place) -> None:
    place.send("4711")
    worker = await place.run("--log-level", "debug", dsn=place.dsn.replace("postgres@", "postgres:hunter2@"))
    await eventually(lambda: place.paid("4711"), timeout=60)
    worker.terminate()
    await worker.wait()

    assert "partition assigned" in "\n".join(worker.output)
    assert "hunter2" not in "\n".join(worker.output)


async def test_a_topic_that_is_not_there_is_a_start_up_error(place: Place) -> None:
    place.requested = "nowhere.requested"

    worker = await place.run()

    assert await worker.wait() == 2
    assert worker.output[-1].startswith("Error: ")
    assert "nowhere.requested" in worker.output[-1]
    assert "Traceback" not in "\n".join(worker.output)


async def test_a_health_port_that_is_taken_is_a_start_up_error_and_leaves_the_group(place: Place) -> None:
    with socket.create_server(("", 0)) as taken:
        worker = await place.run("--health-port", str(taken.getsockname()[1]))

        assert await worker.wait() == 2
    assert worker.output[-1].startswith("Error: Health cannot be answered on port ")
    assert "Traceback" not in "\n".join(worker.output)
    assert await place.connection.fetchval("SELECT count(owner) FROM idem.progress") == 0


async def test_missing_tables_are_a_start_up_error_that_says_what_to_do(empty_dsn: str) -> None:
    run = await command("run", "tests.cli.apps:app", "--database", empty_dsn)
    relay = await command("relay", "--database", empty_dsn)

    for result in (run, relay):
        assert result.status == 2
        assert result.err.endswith("Run `consumer-idem schema install`.\n")
        assert "Traceback" not in result.err


async def test_an_app_that_is_not_there_is_a_start_up_error() -> None:
    result = await command("run", "tests.cli.apps:missing", cwd=ROOT)

    assert (result.status, result.out) == (2, "")
    assert result.err == "Error: Module tests.cli.apps has no 'missing'. Did you mean tests.cli.apps:app or tests.cli.apps:failing?\n"


async def test_an_unexpected_error_is_a_failure_with_its_traceback_and_without_passwords() -> None:
    result = await command("run", "tests.cli.apps:failing")

    assert result.status == 1
    assert "Traceback" in result.err
    assert result.err.rstrip().endswith("RuntimeError: no answer from postgresql://shop:***@db/shop")
    assert "hunter2" not in result.err

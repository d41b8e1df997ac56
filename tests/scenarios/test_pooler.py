"""Everything through a real proxy that pools transactions: no transaction of a client runs in the session of its last one."""

import json
import re
from collections.abc import AsyncIterator

import asyncpg
import pytest

from consumer_idem.testing.supervisor import Supervisor
from consumer_idem.testing.waiting import eventually
from tests.cli.command import command
from tests.conftest import MakeTopic
from tests.outbox.scene import Scene, read_topic, record
from tests.pooler import open_pooler
from tests.scenarios.conftest import Stage
from tests.scenarios.test_processes import ids, payments
from tests.shop import TABLES

SETTINGS = """
SELECT current_setting('lock_timeout') || current_setting('statement_timeout') || current_setting('idle_in_transaction_session_timeout'),
       current_setting('idem.attempt', true) || current_setting('idem.sealed', true), current_setting('enable_seqscan'),
       (SELECT count(*) FROM pg_listening_channels()) + (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')
"""


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """Ends all processes with the test."""
    async with Supervisor() as supervisor:
        yield supervisor


async def test_b18_workers_relays_and_commands_work_through_a_proxy_that_pools_transactions(
    empty_dsn: str, kafka: str, topic: MakeTopic, supervisor: Supervisor
):
    requested, applied = topic(4), topic(1)
    async with open_pooler(empty_dsn) as proxy:
        env = {
            "CONSUMER_IDEM_DATABASE": proxy.dsn,
            "CONSUMER_IDEM_KAFKA": kafka,
            "CONSUMER_IDEM_PREPARED_STATEMENTS": "false",
            "CONSUMER_IDEM_BATCH_SIZE": "10",
            "CLI_TOPIC": requested,
            "CLI_APPLIED": applied,
        }
        installed = await command("schema", "install", env=env)
        assert installed.status == 0, installed.err
        direct = await asyncpg.connect(empty_dsn)
        await direct.execute(TABLES)
        for _ in range(2):
            await supervisor.start("-m", "consumer_idem.cli", "run", "tests.cli.apps:app", env=env)
        stage = Stage(empty_dsn, kafka, requested, supervisor, 4, connection=direct)
        stage.produce([*payments(200), *payments(50), {"payment_id": "p7", "amount": 2}, b"no payment"])
        await stage.until_consumed(252)
        await stage.until("SELECT count(*) FROM idem.outbox", 0)
        shown = await command("show", "tests.cli.apps:app", "checkout", "p7", env=env)
        listed = await command("quarantine", "list", env=env)
        waiting = await command("outbox", "list", env=env)
        async with proxy.every_session() as sessions:
            left = {tuple(await session.fetchrow(SETTINGS)) for session in sessions}
        await direct.close()
    published = await read_topic(kafka, applied)

    assert sorted(json.loads(message.value or b"")["payment_id"] for message in published) == ids(200)
    assert shown.out.startswith("apply-payment: message p7\n  outcome     applied"), shown.err
    assert sorted(re.findall(r"1 × (\w+) in apply-payment", listed.out)) == ["conflict", "undecodable"], listed.err
    assert (waiting.status, waiting.err) == (0, "")
    assert left == {("000", "", "on", 0)}


async def test_b18_prepared_statements_that_a_proxy_loses_are_held_against_no_message_and_the_log_says_what_to_set(
    dsn: str, kafka: str, topic: MakeTopic, supervisor: Supervisor
):
    direct = await asyncpg.connect(dsn)
    await direct.execute(TABLES)
    async with open_pooler(dsn) as proxy:
        stage = Stage(proxy.dsn, kafka, topic(4), supervisor, 4, connection=direct, env={"CONSUMER_IDEM_BATCH_SIZE": "10"})
        stage.produce(payments(100))
        worker = await stage.worker()
        for _ in range(10):
            await worker.line("set CONSUMER_IDEM_PREPARED_STATEMENTS=false")
        worker.terminate()
        await worker.wait()
        await stage.worker(CONSUMER_IDEM_PREPARED_STATEMENTS="false")
        await stage.until_consumed(100)

    assert await stage.effects() == ids(100)
    assert [line for line in worker.output if "message failed" in line or "transaction undone" in line] == []
    assert await stage.rows("SELECT count(*) FROM idem.quarantine") == [0]
    await direct.close()


async def test_b18_a_proxy_that_knows_prepared_statements_needs_no_setting(dsn: str, kafka: str, topic: MakeTopic, supervisor: Supervisor):
    direct = await asyncpg.connect(dsn)
    await direct.execute(TABLES)
    async with open_pooler(dsn, prepared_statements=200) as proxy:
        stage = Stage(proxy.dsn, kafka, topic(4), supervisor, 4, connection=direct, env={"CONSUMER_IDEM_BATCH_SIZE": "10"})
        stage.produce(payments(100))
        worker = await stage.worker()
        await stage.until_consumed(100)

    assert await stage.effects() == ids(100)
    assert "prepared statement" not in worker.tail()
    await direct.close()


async def test_b18_the_relay_says_that_its_listener_hears_nothing_and_polls(
    dsn: str, kafka: str, topic: MakeTopic, caplog: pytest.LogCaptureFixture
):
    name, connection = topic(), await asyncpg.connect(dsn)
    scene = Scene(dsn, kafka, connection)
    async with open_pooler(dsn) as proxy:
        async with scene.relay(dsn=proxy.dsn, statement_cache_size=0):
            await scene.add(record(name, 1))
            await scene.drained()
            await eventually(lambda: "listener hears nothing, the relay polls" in caplog.messages)
            await scene.add(record(name, 2))
            await scene.drained(timeout=5)

    assert await scene.values(name) == [1, 2]
    await connection.close()

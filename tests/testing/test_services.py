"""The servers themselves: they die when told to, keep what they must, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from consumer_idem.testing.services import kafka_ready
from consumer_idem.testing.services.choose import ExternalPostgres
from consumer_idem.testing.services.kafka_jars import cached_jars, can_resolve
from consumer_idem.testing.services.ports import free_port
from consumer_idem.testing.services.postgres import PostgresServer
from consumer_idem.testing.services.process import ServiceFailed, ServiceProcess
from consumer_idem.testing.services.small_broker import SmallBroker
from tests.conftest import MakeTopic, Services, admin_of, make_topic


def until(condition: Callable[[], bool], timeout: float = 10) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "The condition did not come true."
        time.sleep(0.01)


async def test_a_fresh_database_has_the_tables_and_nothing_in_them(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)

    assert await connection.fetchval("SELECT count(*) FROM idem.inbox") == 0
    assert await connection.fetchval("SELECT max(version) FROM idem.schema_version") >= 1
    await connection.close()


async def test_an_empty_database_has_no_tables_of_ours(empty_dsn: str) -> None:
    connection = await asyncpg.connect(empty_dsn)

    assert await connection.fetchval("SELECT to_regnamespace('idem')") is None
    await connection.close()


@pytest.mark.parametrize("end", ["kill9", "immediate", "fast"])
async def test_postgres_keeps_what_was_committed_when_it_ends_and_starts_again(services: Services, end: Any) -> None:
    server = services.postgres()
    connection = await asyncpg.connect(server.dsn())
    await connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    before = server.pid

    server.kill9() if end == "kill9" else server.stop(end)
    with pytest.raises((OSError, asyncpg.PostgresError)):
        await asyncpg.connect(server.dsn())
    server.start()

    again = await asyncpg.connect(server.dsn(via=server.address))
    assert await again.fetchval("SELECT n FROM kept") == 1
    assert server.pid != before
    await again.close()
    connection.terminate()


async def test_postgres_takes_the_settings_it_is_given(services: Services) -> None:
    server = services.postgres(fsync=True, settings={"max_prepared_transactions": "7"})
    connection = await asyncpg.connect(server.dsn())

    shown = [await connection.fetchval(f"SHOW {name}") for name in ("fsync", "max_connections", "max_prepared_transactions")]

    assert shown == ["on", "200", "7"]
    await connection.close()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = PostgresServer(settings={"shared_buffers": "nonsense"})

    with pytest.raises(ServiceFailed, match="invalid value for parameter"):
        server.start()
    server.close()


def test_a_server_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    process = ServiceProcess(["sleep", "60"], tmp_path / "log")

    with pytest.raises(ServiceFailed, match="sleep was not ready"):
        process.until(lambda: False, timeout=0.1)

    assert not process.running()


PROGRAM = """
import sys, time
from consumer_idem.testing.services.postgres import PostgresServer
from consumer_idem.testing.services.small_broker import SmallBroker
server, broker = PostgresServer(fsync=False), SmallBroker()
server.start(); broker.start()
print(server.pid, broker.pid, server._folder, broker._folder, flush=True)
if sys.argv[1] == "kill":
    time.sleep(60)
"""


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_servers_and_their_folders_are_gone_with_the_process_that_started_them(end: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, end], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        *pids, folder, other = process.stdout.readline().split()
        if end == "kill":
            os.kill(process.pid, signal.SIGKILL)
        process.wait(20)

    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    until(lambda: not Path(folder).exists() and not Path(other).exists())


@pytest.mark.any_kafka
def test_a_topic_is_there_with_its_partitions(kafka: str, topic: MakeTopic, kafka_admin: Any) -> None:
    name = topic(3)

    assert len(kafka_admin.list_topics(name, timeout=10).topics[name].partitions) == 3


def test_a_topic_has_the_configuration_it_was_given(topic: MakeTopic, kafka_admin: Any) -> None:
    from confluent_kafka.admin import ConfigResource

    resource = ConfigResource("topic", topic(1, {"cleanup.policy": "compact"}))

    found = kafka_admin.describe_configs([resource])[resource].result(10)

    assert found["cleanup.policy"].value == "compact"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_kafka_keeps_its_topics_when_it_is_killed_and_paused_and_starts_again(services: Services) -> None:
    broker = services.kafka()
    address = ("127.0.0.1", broker.port)
    make_topic(admin_of(broker.bootstrap), "kept", 2, {})

    broker.kill9()
    assert not kafka_ready.knows_itself(address)
    broker.start()
    assert kafka_ready.does_everything(address)
    assert len(admin_of(broker.bootstrap).list_topics("kept", timeout=10).topics["kept"].partitions) == 2

    broker.pause()
    assert not kafka_ready.knows_itself(address)
    broker.resume()
    until(lambda: kafka_ready.does_everything(address), timeout=20)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="/proc tells of threads")
def test_no_thread_of_a_paused_server_runs_any_more(tmp_path: Path) -> None:
    # One that still runs may answer a client, or commit, after pause() has returned.
    spin = "import threading, time; work = lambda: all(time.sleep(0) is None for _ in iter(int, 1))"
    spin += "; [threading.Thread(target=work).start() for _ in range(40)]; print('up', flush=True)"
    process = ServiceProcess([sys.executable, "-c", spin], tmp_path / "log")
    process.until(lambda: "up" in process.tail(), 20)

    for _ in range(150):
        process.pause(20)
        assert _states_of_threads(process.pid) == {"T"}
        process.signal(signal.SIGCONT)
    process.kill()


def _states_of_threads(pid: int) -> set[str]:
    return {task.joinpath("stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()}


def test_the_small_broker_starts_again_empty_and_gives_no_group_for_certain(services: Services) -> None:
    broker = services.small_broker()

    broker.restart()

    assert isinstance(broker, SmallBroker)
    assert not broker.is_real
    assert kafka_ready.knows_itself(("127.0.0.1", broker.port))


def test_nothing_answers_where_nothing_listens() -> None:
    assert not kafka_ready.does_everything(("127.0.0.1", free_port()))


def test_a_port_that_was_given_is_not_given_to_another_before_it_is_bound() -> None:
    assert len({free_port() for _ in range(600)}) == 600


def test_kafka_can_be_had_where_its_jars_are() -> None:
    if cached_jars().is_dir():
        assert can_resolve()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("postgresql://u:p@h:5/main?sslmode=require", "postgresql://u:p@h:5/x?sslmode=require"),
        ("postgresql://u@/main?host=/run/pg", "postgresql://u@/x?host=/run/pg"),
        ("postgresql://h", "postgresql://h/x"),
    ],
)
def test_a_given_connection_string_is_used_for_other_databases(given: str, expected: str) -> None:
    assert ExternalPostgres(given).dsn("x") == expected

"""The demo as a user runs it; it fails loudly where the promise is broken, and leaves nothing behind."""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import asyncpg
import psutil
import pytest

from consumer_idem.demo.play import perform
from consumer_idem.demo.services import open_services
from consumer_idem.demo.stage import Options, staged
from consumer_idem.demo.telling import Teller
from consumer_idem.testing.waiting import eventually
from tests.cli.command import ROOT, clean_environment, command

MESSAGES = 400
EXPECTED = {
    "produced": 400,
    "distinct": 332,
    "applied": 324,
    "rejected": 8,
    "duplicates": 60,
    "conflicts": 4,
    "undecodable": 4,
    "quarantined": 8,
    "published": 324,
    "killed_workers": 1,
    "lost": 0,
    "doubled": 0,
    "wrong": 0,
    "problems": [],
}


async def test_each_payment_takes_effect_once() -> None:
    result = await command("--messages", str(MESSAGES), "--json", program="consumer_idem.demo")

    assert result.status == 0, result.err
    numbers = json.loads(result.out)
    assert numbers.pop("seconds") > 0
    assert numbers == EXPECTED
    assert "first worker killed" in result.err


async def test_a_handler_that_applies_twice_is_found_out() -> None:
    result = await command("demo", "--messages", str(MESSAGES), "--json", "--app", "tests.demo.broken:app")

    numbers = json.loads(result.out)
    assert result.status == 1
    assert numbers["doubled"] >= 32
    assert any("applied again: pay-0000" in problem for problem in numbers["problems"])


async def test_lost_effects_are_found_out() -> None:
    with Teller() as teller:
        async with open_services(None, None) as services, staged(Options(messages=MESSAGES), services, teller) as stage:
            report = await perform(stage, began=time.monotonic())
            connection = await asyncpg.connect(services.dsn)
            await connection.execute("DELETE FROM payment WHERE id = (SELECT min(id) FROM payment)")
            await connection.execute("DELETE FROM refusal WHERE payment_id = (SELECT min(payment_id) FROM refusal)")
            await connection.close()

            _, verdict = await stage.judge()

    assert report.kept, report.verdict.problems
    assert (verdict.lost, verdict.doubled) == (2, 0)


@pytest.mark.any_kafka
async def test_servers_that_are_given_are_used_and_left_as_they_were(empty_dsn: str, kafka: str) -> None:
    result = await command("demo", "--messages", str(MESSAGES), "--database", empty_dsn, "--kafka", kafka)

    assert result.status == 0, result.out + result.err
    assert "Each payment took effect once" in result.out
    connection = await asyncpg.connect(empty_dsn)
    schemas = await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname ~ '^(shop|idem)'")
    await connection.close()
    assert schemas == 0
    assert not [topic for topic in topics(kafka) if topic.startswith("payments.requested.")]


def topics(kafka: str) -> list[str]:
    from confluent_kafka.admin import AdminClient

    return list(AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)], ids=str)
async def test_whatever_ends_it_leaves_no_process_and_no_folder(number: signal.Signals, status: int) -> None:
    demo = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "consumer_idem.demo", "--messages", "50000"),
        cwd=ROOT,
        env=clean_environment(),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    await told(demo, b"messages sent")
    processes = psutil.Process(demo.pid).children(recursive=True)
    folders = {folder for process in processes if (folder := temporary_folder(process))}
    # Two servers, two workers, the relay, and the keeper that ends them all.
    assert len(processes) >= 6
    assert len(folders) == 2

    demo.send_signal(number)

    assert await asyncio.wait_for(demo.wait(), 45) == status
    await eventually(lambda: not [process for process in processes if process.is_running()], timeout=20)
    await eventually(lambda: not [folder for folder in folders if folder.exists()], timeout=20)


async def told(demo: asyncio.subprocess.Process, words: bytes) -> None:
    assert demo.stderr is not None
    while words not in (line := await asyncio.wait_for(demo.stderr.readline(), 60)):
        assert line, "the demo ended before"


def temporary_folder(process: psutil.Process) -> Path | None:
    try:
        place = Path(process.cwd())
    except psutil.NoSuchProcess:
        # A server's children come and go.
        return None
    return next((folder for folder in (place, *place.parents) if folder.name.startswith("idem-")), None)

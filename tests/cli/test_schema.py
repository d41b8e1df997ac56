"""`consumer-idem schema`, and what is said where there is no database or no schema."""

import re

import asyncpg

from consumer_idem.sql import migrations
from tests.cli.command import command

NEWEST = max(migrations("idem"))


async def test_install_makes_the_tables_and_is_harmless_to_repeat(empty_dsn: str) -> None:
    first = await command("schema", "install", "--database", empty_dsn)
    second = await command("schema", "install", "--database", empty_dsn)
    verified = await command("schema", "verify", "--database", empty_dsn)

    assert (first.status, first.out) == (0, f"Schema idem: migrations {', '.join(map(str, migrations('idem')))} installed.\n")
    assert (second.status, second.out) == (0, "Schema idem: up to date.\n")
    assert verified.status == 0


async def test_verify_tells_what_is_missing(empty_dsn: str) -> None:
    result = await command("schema", "verify", env={"CONSUMER_IDEM_DATABASE": empty_dsn})

    assert result.status == 1
    assert "Run `consumer-idem schema install`" in result.err


async def test_a_hint_names_the_schema_that_it_is_about(empty_dsn: str) -> None:
    result = await command("schema", "verify", "--database", empty_dsn, "--schema", "other")
    hint = re.search(r"Run `consumer-idem ([^`]+)`", result.err)
    assert hint is not None
    await command(*hint[1].split(), "--database", empty_dsn)

    assert (await command("schema", "verify", "--database", empty_dsn, "--schema", "other")).status == 0


async def test_the_script_makes_the_same_tables(empty_dsn: str) -> None:
    script = (await command("schema", "sql", "--schema", "elsewhere")).out
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute(script)
    await connection.close()

    result = await command("schema", "verify", "--database", empty_dsn, "--schema", "elsewhere")

    assert result.status == 0, result.err


async def test_a_schema_name_that_is_no_identifier_is_refused(empty_dsn: str) -> None:
    result = await command("schema", "install", "--database", empty_dsn, "--schema", 'idem"; drop')

    assert (result.status, result.out) == (2, "")
    assert "not a plain lower-case identifier" in result.err


async def test_without_a_database_it_is_said_how_to_name_one() -> None:
    result = await command("schema", "install", cwd="/")

    assert result.status == 2
    assert result.err == "Error: No database is named. Pass --database postgresql://…, set CONSUMER_IDEM_DATABASE, or App(database=…).\n"


async def test_a_database_that_does_not_answer_is_one_line_without_its_password() -> None:
    result = await command("schema", "install", "--database", "postgresql://shop:hunter2@127.0.0.1:1/shop")

    assert result.status == 2
    assert result.err.startswith("Error: PostgreSQL could not be used:")
    assert len(result.err.splitlines()) == 1
    assert "hunter2" not in result.err

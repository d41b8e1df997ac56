"""`consumer-idem show`: what happened to a message."""

import json

import asyncpg
import pytest

from consumer_idem.message import Message
from tests.cli.apps import TOPIC, app
from tests.cli.command import Result, command
from tests.shop import TABLES, payment


@pytest.fixture
async def settled(dsn: str) -> str:
    """A database in which some messages were handled, and nothing was published yet."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    await connection.close()
    app.runtime({"database": dsn})
    await app.process(
        [
            payment(0, "4711", amount="12.00", topic=TOPIC),
            payment(1, "4711", amount="12", topic=TOPIC, partition=1),
            payment(2, "4711", amount="13", topic=TOPIC),
            payment(3, "4712", note="refuse", topic=TOPIC),
            payment(4, "a|b", topic=TOPIC),
            Message(topic=TOPIC, partition=0, offset=5, value=b"no payment \x1b[31mred\xff"),
        ]
    )
    await app.close()
    return dsn


async def show(dsn: str, *arguments: str) -> Result:
    return await command("show", "tests.cli.apps:app", *arguments, "--database", dsn)


async def test_an_applied_message_is_told_with_all_that_came_of_it(settled: str) -> None:
    result = await show(settled, "checkout", "4711")

    lines = result.out.splitlines()
    assert result.status == 0, result.err
    assert lines[0] == "apply-payment: message 4711"
    assert lines[1].startswith("  outcome     applied, claimed at 20")
    assert lines[2] == "  position    cli.requested/0@0"
    assert lines[3].startswith("  duplicates  cli.requested/1@1 at 20")
    assert lines[4].startswith("  quarantine  #")
    assert "open: conflict (amount differs), cli.requested/0@2 at 20" in lines[4]
    assert lines[5].startswith("  outbox      record ")
    assert "for cli.applied waits since 20" in lines[5]
    assert len(lines) == 6


async def test_a_refusal_is_told_with_its_answer(settled: str) -> None:
    result = await show(settled, "apply-payment", "4712")

    assert "outcome     rejected, claimed at" in result.out
    assert 'answer      insufficient-funds {"missing": 3}' in result.out
    assert "duplicates  none seen" in result.out
    assert "outbox      nothing waits" in result.out


@pytest.mark.parametrize("typed", ["a|b", r"a\|b"])
async def test_an_id_is_found_as_the_message_has_it_and_as_it_is_shown(settled: str, typed: str) -> None:
    result = await show(settled, "checkout", typed)

    assert result.out.startswith(r"apply-payment: message a\|b")


async def test_json_has_the_same_in_fields(settled: str) -> None:
    [found] = json.loads((await show(settled, "checkout", "4711", "--json")).out)

    assert {name: found[name] for name in ("handler", "outcome", "message_id", "source", "topic", "partition", "offset", "answer")} == {
        "handler": "apply-payment",
        "outcome": "applied",
        "message_id": "4711",
        "source": "checkout",
        "topic": TOPIC,
        "partition": 0,
        "offset": 0,
        "answer": None,
    }
    assert [(row["partition"], row["offset"]) for row in found["duplicates"]] == [(1, 1)]
    assert [(row["reason"], row["fields"]) for row in found["quarantined"]] == [("conflict", ["amount"])]
    assert [row["topic"] for row in found["unpublished"]] == ["cli.applied"]


async def test_what_was_never_seen_is_a_failure(settled: str) -> None:
    result = await show(settled, "checkout", "4713")

    assert (result.status, result.out) == (1, "")
    assert "No handler has settled 4713" in result.err


async def test_a_name_that_the_app_does_not_have_is_answered_with_those_it_has(settled: str) -> None:
    result = await show(settled, "check", "4711")

    assert (result.status, result.err) == (2, "Error: 'check' is no source or handler of this App. It has apply-payment, checkout.\n")

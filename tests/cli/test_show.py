"""`consumer-idem show`: what happened to a message."""

import json

import asyncpg
import pytest

from consumer_idem.message import Message
from tests.cli.apps import TOPIC, app
from tests.cli.command import Result, command, inside
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
    result = await inside("show", "tests.cli.apps:app", *arguments, "--database", dsn)
    # The command has closed its database; the App would keep it for the next command.
    await app.close()
    return result


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


async def test_a_record_whose_topic_takes_none_is_told_with_the_reason(settled: str) -> None:
    connection = await asyncpg.connect(settled)
    await connection.execute("INSERT INTO idem.outbox_relay VALUES (gen_random_uuid(), '-infinity')")
    await connection.execute(
        "INSERT INTO idem.outbox_hold (topic, owner, error) SELECT 'cli.applied', owner, 'missing' FROM idem.outbox_relay"
    )
    await connection.close()
    result = await show(settled, "checkout", "4711")
    [found] = json.loads((await show(settled, "checkout", "4711", "--json")).out)

    assert "for cli.applied waits for its topic since 20" in result.out
    assert result.out.endswith(": missing\n")
    assert [(row["status"], row["error"]) for row in found["unpublished"]] == [("topic-held", "missing")]


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
    assert result.err == "No handler has settled 4713, and no entry in quarantine has this id, or holds its text and has none.\n"


REFUSED = [
    b'{"payment_id": "4714", "amount": "ten"}',
    b'{"payment_id": "94714", "amount": "ten"}',
    b'{"payment_id": "4714x", "amount": "ten"}',
    b"not JSON at all, 4714\xff\x00",
    rb'{"payment_id": "caf\u00e9 \u00e9|7", "amount": "ten"}',
    '{"payment_id": "caf\u00e9 \u00e9|7", "amount": "ten"}'.encode(),
    b'{"payment_id": "a.b", "amount": "ten"}',
    b'{"payment_id": "axb", "amount": "ten"}',
    b"x" * 17_000 + b" 4714",
]


@pytest.fixture
async def refused(settled: str) -> str:
    """A database in which messages were refused before their id was found, from offset 10 on, entries from #3 on."""
    app.runtime({"database": settled})
    await app.process([Message(topic=TOPIC, partition=0, offset=10 + number, value=value) for number, value in enumerate(REFUSED)])
    await app.process([Message(topic=TOPIC, partition=0, offset=30, value=b"?", headers=[("trace", b"for 4714")], key=b"4715")])
    await app.close()
    return settled


@pytest.mark.parametrize(
    ("id", "offsets"),
    [
        (["4714"], [10, 13, 30]),
        (["4715"], [30]),
        (["caf\u00e9 \u00e9|7"], [14, 15]),
        (["caf\u00e9 \u00e9", "7"], [14, 15]),
        (["a.b"], [16]),
        (["4714", "ten"], [10]),
        ([""], []),
    ],
)
async def test_a_message_that_was_refused_before_it_had_an_id_is_found_by_its_text(refused: str, id: list[str], offsets: list[int]) -> None:
    result = await show(refused, "checkout", *id, "--json")

    found = [part for part in json.loads(result.out) if part["by_text"]]
    assert [row["offset"] for part in found for row in part["quarantined"]] == offsets
    assert result.status == (0 if offsets else 1)


async def test_what_is_found_by_its_text_is_told_as_a_guess(refused: str) -> None:
    lines = (await show(refused, "checkout", "4714")).out.splitlines()

    assert lines[0] == "Perhaps message 4714: a guess, since these entries have no id; their text holds this one."
    assert lines[1].startswith("  quarantine  #3 open: undecodable, cli.requested/0@10 at 20")
    assert len(lines) == 4


async def test_what_is_known_stands_before_what_is_guessed(refused: str) -> None:
    app.runtime({"database": refused})
    await app.process([Message(topic=TOPIC, partition=0, offset=40, value=b'{"payment_id": "4711", "amount": "ten"}')])
    await app.close()
    lines = (await show(refused, "checkout", "4711")).out.splitlines()

    assert lines[0] == "apply-payment: message 4711"
    assert [line[:28] for line in lines[-2:]] == ["Perhaps message 4711: a gues", "  quarantine  #13 open: unde"]


@pytest.mark.parametrize(
    "owner", ["consumer_group = 'another'", "topic = (SELECT id FROM idem.topic WHERE name = 'another')", "scope = 99"]
)
async def test_entries_of_others_are_not_guessed_at(refused: str, owner: str) -> None:
    connection = await asyncpg.connect(refused)
    await connection.execute(
        "INSERT INTO idem.topic (name) VALUES ('another');"
        "INSERT INTO idem.scope (id, name, consumer_group, key_scheme) OVERRIDING SYSTEM VALUE VALUES (99, 'another', 'another', 0)"
    )
    assert (await show(refused, "checkout", "4715")).status == 0
    await connection.execute(f"UPDATE idem.quarantine SET {owner}")
    await connection.close()

    assert (await show(refused, "checkout", "4715")).status == 1


async def test_only_the_newest_entries_are_searched(refused: str) -> None:
    connection = await asyncpg.connect(refused)
    fill = """
    INSERT INTO idem.quarantine (reason, consumer_group, topic, partition, "offset", value)
    SELECT 'undecodable', $1, (SELECT id FROM idem.topic), 9, n, '?' FROM generate_series(1, 1000) AS n
    """
    assert (await show(refused, "checkout", "4715")).status == 0
    await connection.execute(fill, TOPIC)
    await connection.close()

    assert (await show(refused, "checkout", "4715")).status == 1


async def test_a_name_that_the_app_does_not_have_is_answered_with_those_it_has(settled: str) -> None:
    result = await command("show", "tests.cli.apps:app", "check", "4711", "--database", settled)

    assert (result.status, result.err) == (2, "Error: 'check' is no source or handler of this App. It has apply-payment, checkout.\n")

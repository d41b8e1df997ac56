"""`consumer-idem quarantine`: what needs a person, and what the person decides."""

import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from consumer_idem.message import Message
from tests.cli.apps import TOPIC, app
from tests.cli.command import Result, command, inside
from tests.shop import TABLES, payment

APP = ("--app", "tests.cli.apps:app")
CONFLICT, FAILED, FAILED_TOO, GARBAGE = 1, 2, 3, 4


@pytest.fixture
async def quarantined(dsn: str) -> str:
    """A database with entries: a conflict, two that a constraint refuses, bytes that are no payment."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    await connection.execute("ALTER TABLE payment ADD CONSTRAINT small CHECK (amount < 1000)")
    await connection.close()
    app.runtime({"database": dsn})
    await app.process(
        [
            payment(0, "4711", amount="12.00", topic=TOPIC),
            payment(1, "4711", amount="13", topic=TOPIC),
            payment(2, "4712", amount="1000", topic=TOPIC),
            payment(3, "4713", amount="1000", topic=TOPIC),
            payment(4, "4712", amount="1000.0", topic=TOPIC, partition=1),
            Message(topic=TOPIC, partition=0, offset=5, value=b"no payment \x1b[31mred\xff"),
        ]
    )
    await app.close()
    return dsn


async def quarantine(dsn: str, *arguments: str, **options: Any) -> Result:
    if options:
        return await command("quarantine", *arguments, "--database", dsn, **options)
    result = await inside("quarantine", *arguments, "--database", dsn)
    # The command has closed its database; the App would keep it for the next command.
    await app.close()
    return result


async def rows(dsn: str, sql: str, *args: Any) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) if len(row) > 1 else row[0] for row in await connection.fetch(sql, *args)]
    finally:
        await connection.close()


async def allow_large_payments(dsn: str) -> None:
    await rows(dsn, "ALTER TABLE payment DROP CONSTRAINT small")


async def test_entries_are_listed_in_groups(quarantined: str) -> None:
    await rows(quarantined, "UPDATE idem.quarantine SET error = 'alike', quarantined_at = now() - id * interval '1 hour'")
    result = await quarantine(quarantined, "list")

    heads, places = result.out.splitlines()[::2], result.out.splitlines()[1::2]
    assert heads == [
        "1 × conflict in apply-payment: alike",
        "2 × attempts-used-up in apply-payment: alike",
        "1 × undecodable in apply-payment: alike",
    ]
    assert " UTC, from #2, topic cli.requested" in places[1]
    assert " to 20" in places[1]
    assert " UTC, #4, topic cli.requested" in places[2]


async def test_groups_have_a_count_and_the_first_and_the_last_time(quarantined: str) -> None:
    await rows(
        quarantined, "UPDATE idem.quarantine SET error = 'alike', quarantined_at = now() - id * interval '1 hour' WHERE id IN (2, 3)"
    )
    [group] = json.loads((await quarantine(quarantined, "list", "--reason", "attempts-used-up", "--json")).out)

    assert {name: group[name] for name in ("entries", "handler", "error", "first_id")} == {
        "entries": 2,
        "handler": "apply-payment",
        "error": "alike",
        "first_id": FAILED,
    }
    assert group["first_at"] < group["last_at"]


async def test_errors_that_differ_in_what_varies_are_one_group(quarantined: str) -> None:
    [of_constraint] = [line for line in (await quarantine(quarantined, "list")).out.splitlines() if "attempts-used-up" in line]
    await rows(quarantined, ADD_ERRORS, ERRORS)
    result = await quarantine(quarantined, "list", "--reason", "attempts-used-up")
    found = json.loads((await quarantine(quarantined, "list", "--reason", "attempts-used-up", "--json")).out)

    assert (
        of_constraint
        == '2 × attempts-used-up in apply-payment: CheckViolationError: new row for relation "payment" violates check constraint "small"'
    )
    assert sorted(line for line in result.out.splitlines() if " ×" in line) == sorted([of_constraint, *GROUPS])
    assert sum(group["entries"] for group in found) == 2 + len(ERRORS)
    assert {group["error"] for group in found if group["errors_differ"]} == {
        line.partition(": ")[2] for line in [of_constraint, *GROUPS] if not line.startswith("1 ")
    }


ADD_ERRORS = """
INSERT INTO idem.quarantine (reason, error, consumer_group, topic, partition, "offset")
SELECT 'attempts-used-up', error, 'g', 1, 7, number FROM unnest($1::text[]) WITH ORDINALITY AS made (error, number)
"""
ERRORS = [
    "LookupError: no account p-4711 in shop/3@17",
    "LookupError: no account p-4712 in shop/0@5\nDETAIL: another",
    "LookupError: no account bob-1 in shop/1@1",
    "LookupError: no depot p-4711",
    "KeyError: 'alice'",
    "KeyError: 'bob'",
    "Http2Error: 'alice'",
    "ValueError: can't divide alice's share",
    'DataError: invalid input syntax for type integer: "x17" (amount=12.50)',
    'DataError: invalid input syntax for type integer: "y18" (amount=-3)',
    "OSError: refused",
]
GROUPS = [
    "3 × attempts-used-up: LookupError: no account … in …",
    "1 × attempts-used-up: LookupError: no depot p-4711",
    "2 × attempts-used-up: KeyError: …",
    "1 × attempts-used-up: Http2Error: 'alice'",
    "1 × attempts-used-up: ValueError: can't divide alice's share",
    '2 × attempts-used-up: DataError: invalid input syntax for type integer: "…" (amount=…)',
    "1 × attempts-used-up: OSError: refused",
]


@pytest.mark.parametrize(("flags", "what", "total"), [(("--limit", "2"), "groups", 3), (("--entries", "--limit", "3"), "entries", 4)])
async def test_what_is_left_out_of_a_list_is_counted(quarantined: str, flags: tuple[str, ...], what: str, total: int) -> None:
    result = await quarantine(quarantined, "list", *flags)
    as_json = await quarantine(quarantined, "list", *flags, "--json")
    everything = await quarantine(quarantined, "list", *flags[:-1], str(total))

    left = f"… and 1 more {what}. `consumer-idem quarantine list` with --limit {total} lists all; its filters choose."
    assert result.out.splitlines()[-1] == as_json.err.strip() == left
    assert len(json.loads(as_json.out)) == total - 1
    assert " more " not in everything.out


async def test_entries_are_listed_one_by_one_and_filtered(quarantined: str) -> None:
    await quarantine(quarantined, "discard", str(GARBAGE), "--reason", "no payment")
    for filters, ids in FILTERS.items():
        result = await quarantine(quarantined, "list", "--entries", *filters.split(), "--json")

        assert [entry["id"] for entry in json.loads(result.out)] == ids, filters


FILTERS = {
    "": [CONFLICT, FAILED, FAILED_TOO],
    "--reason conflict": [CONFLICT],
    "--handler apply-payment --message-id 4713": [FAILED_TOO],
    "--handler another": [],
    f"--topic {TOPIC} --limit 2": [CONFLICT, FAILED],
    "--topic another": [],
    "--since 2999-01-01T00:00Z": [],
    "--since 2026-01-01T00:00Z --state all": [CONFLICT, FAILED, FAILED_TOO, GARBAGE],
    "--state discarded": [GARBAGE],
}


async def test_an_entry_is_one_line(quarantined: str) -> None:
    result = await quarantine(quarantined, "list", "--entries", "--reason", "conflict")

    assert result.out.startswith("#1 open: conflict (amount differs), ")
    assert result.out.endswith("Message 4711.\n")


async def test_a_conflict_is_shown_with_the_copy_that_holds_its_key(quarantined: str) -> None:
    result = await quarantine(quarantined, "show", str(CONFLICT))
    shown = json.loads((await quarantine(quarantined, "show", str(CONFLICT), "--json")).out)

    assert '{"payment_id": "4711", "amount": "13"}' in result.out
    assert f"key held by     {TOPIC}/0@0, applied, claimed at 20" in result.out
    assert (shown["held_by"]["status"], shown["held_by"]["offset"], shown["fields"]) == ("applied", 0, ["amount"])


async def test_an_entry_is_shown_with_the_duplicates_that_joined_it_and_what_was_done(quarantined: str) -> None:
    await quarantine(quarantined, "release", str(FAILED), *APP, "--note", "try again", "--by", "ann")
    result = await quarantine(quarantined, "show", str(FAILED))

    assert f"duplicate       {TOPIC}/1@4 at 20" in result.out
    assert "release by ann → quarantined: CheckViolationError" in result.out
    assert "(try again)" in result.out


async def test_a_value_drives_no_terminal_unless_it_is_asked_for_as_it_is(quarantined: str) -> None:
    shown = await quarantine(quarantined, "show", str(GARBAGE))
    nothing = await quarantine(quarantined, "show", "999")
    raw = await quarantine(quarantined, "show", str(FAILED), "--value")

    assert r"no payment \x1b[31mred\xff" in shown.out
    assert nothing.status == 1
    assert raw.out == '{"payment_id": "4712", "amount": "1000"}'


async def test_a_release_tells_its_outcome_and_a_second_one_says_duplicate(quarantined: str) -> None:
    again = await quarantine(quarantined, "release", str(FAILED), *APP)
    await allow_large_payments(quarantined)
    first = await quarantine(quarantined, "release", str(FAILED), str(FAILED_TOO), *APP)
    second = await quarantine(quarantined, "release", str(FAILED), *APP)

    assert again.status == 1
    assert again.out.startswith("#2 stays in quarantine: attempts-used-up: CheckViolationError: ")
    assert (first.status, first.out) == (0, "#2 applied\n#3 applied\n")
    assert second.status == 0
    assert second.out.startswith("#2 duplicate: released at 20")
    assert await rows(quarantined, "SELECT id FROM payment ORDER BY 1") == ["4711", "4712", "4713"]


async def test_a_conflict_is_released_by_decision_only(quarantined: str) -> None:
    plain = await quarantine(quarantined, "release", str(CONFLICT), *APP)
    without_note = await quarantine(quarantined, "release", str(CONFLICT), *APP, "--as", "new-id")
    invented = await quarantine(quarantined, "release", str(CONFLICT), *APP, "--as", "4799", "--note", "both are meant")
    decided = await quarantine(quarantined, "release", str(CONFLICT), *APP, "--as", "new-id", "--note", "both are meant")
    shown = await inside("show", "tests.cli.apps:app", "checkout", "4711#released-1", "--database", quarantined)
    await app.close()

    assert plain.status == 1
    assert "--as new-id" in plain.out
    assert invented.status == 2
    assert "'4799' is not " in invented.err
    assert without_note.status == 2
    assert (decided.status, decided.out) == (0, "#1 applied as 4711#released-1\n")
    assert "outcome     applied" in shown.out
    assert await rows(quarantined, "SELECT amount FROM payment ORDER BY 1") == [12, 13]


PADDED = '{"payment_id": "4799", "amount": 7, "note": "' + "x" * 500 + '"}'


async def test_a_correction_comes_from_a_file_and_needs_a_note(quarantined: str, tmp_path: Path) -> None:
    file = tmp_path / "corrected.json"
    file.write_text(PADDED)
    edit = ("release", str(GARBAGE), *APP, "--edit", str(file))
    without_note = await quarantine(quarantined, *edit)
    released = await quarantine(quarantined, *edit, "--note", "ticket 12", "--by", "ann")
    two = await quarantine(quarantined, "release", "2", "3", *APP, "--edit", str(file), "--note", "ticket 12")

    assert without_note.status == 2
    assert two.status == 2
    shown = (await quarantine(quarantined, "show", str(GARBAGE))).out.splitlines()
    [act] = json.loads((await quarantine(quarantined, "show", str(GARBAGE), "--json")).out)["audit"]
    assert (released.status, released.out) == (0, "#4 applied\n")
    assert shown[-1] == f"with payload    {PADDED[:500]}… ({len(PADDED)} bytes; --json writes them all)"
    assert shown[-2].endswith(" release by ann with another payload → applied (ticket 12)")
    assert act["edited"] == PADDED
    assert await rows(quarantined, "SELECT id, amount FROM payment WHERE id = '4799'") == [("4799", 7)]
    assert await rows(quarantined, "SELECT operator, note, edited FROM idem.quarantine_audit") == [("ann", "ticket 12", file.read_bytes())]


async def test_all_shows_first_and_releases_with_yes(quarantined: str) -> None:
    await allow_large_payments(quarantined)
    bulk = ("release", *APP, "--all", "--reason", "attempts-used-up", "--handler", "apply-payment")
    dry = await quarantine(quarantined, *bulk)
    before = await rows(quarantined, "SELECT count(*) FROM payment")
    done = await quarantine(quarantined, *bulk, "--yes")
    nothing = await quarantine(quarantined, *bulk)

    assert dry.status == 0
    assert "× attempts-used-up in apply-payment: CheckViolationError" in dry.out
    assert dry.out.endswith("Would release 2 entries. Add --yes to do it.\n")
    assert before == [1]
    assert (done.status, done.out) == (0, "#2 applied\n#3 applied\n")
    assert nothing.out == "There is nothing to release.\n"


async def test_discarded_entries_are_closed_and_their_keys_stay_taken(quarantined: str) -> None:
    await allow_large_payments(quarantined)
    result = await quarantine(quarantined, "discard", str(CONFLICT), str(FAILED), "--reason", "sent by mistake", "--by", "ann")
    again = await quarantine(quarantined, "discard", str(FAILED), "--reason", "sent by mistake")
    release = await quarantine(quarantined, "release", str(FAILED), *APP)
    app.runtime({"database": quarantined})
    outcomes = await app.process([payment(9, "4712", amount="1000", topic=TOPIC)])
    await app.close()

    assert (result.status, result.out) == (0, "#1 discarded\n#2 discarded\n")
    assert (again.status, again.out) == (1, "#2 was not open\n")
    assert release.out.startswith("#2 duplicate: discarded at 20")
    assert [type(outcome).__name__ for outcome in outcomes] == ["Skipped"]
    assert await rows(quarantined, "SELECT message_id, status::text FROM idem.inbox ORDER BY 1") == [
        ("4711", "a"),
        ("4712", "d"),
        ("4713", "q"),
    ]
    assert await rows(quarantined, "SELECT operator, note FROM idem.quarantine_audit") == [("ann", "sent by mistake")] * 2


async def test_all_shows_first_and_discards_with_yes(quarantined: str) -> None:
    bulk = ("discard", "--reason", "test data", "--all", "--only", "attempts-used-up")
    dry = await quarantine(quarantined, *bulk)
    open_before = await rows(quarantined, "SELECT count(*) FROM idem.quarantine WHERE state = 'open'")
    done = await quarantine(quarantined, *bulk, "--yes")

    assert dry.out.endswith("Would discard 2 entries. Add --yes to do it.\n")
    assert open_before == [4]
    assert done.out == "#2 discarded\n#3 discarded\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("release", *APP),
        ("release", "1", *APP, "--all"),
        ("release", "1", *APP, "--reason", "conflict"),
        ("release", "1"),
        ("release", "1", *APP, "--edit", "/nowhere", "--note", "x"),
        ("discard", "1"),
        ("discard", "1", "--reason", " "),
        ("list", "--since", "yesterday"),
        ("list", "--since", "2026-01-01T00:00"),
    ],
    ids=" ".join,
)
async def test_what_cannot_be_meant_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    result = await inside("quarantine", *arguments)

    assert (result.status, result.out) == (2, "")


@pytest.mark.parametrize(("point", "status", "payments"), [("handlers.after", "q", 0), ("seal.after", "q", 0), ("commit.after", "a", 1)])
async def test_g2_a_release_that_is_killed_loses_and_doubles_nothing(quarantined: str, point: str, status: str, payments: int) -> None:
    await allow_large_payments(quarantined)
    env = {"CONSUMER_IDEM_ENABLE_FAILPOINTS": "1", "CONSUMER_IDEM_FAILPOINTS": f"{point}=kill"}
    killed = await quarantine(quarantined, "release", str(FAILED), *APP, env=env)

    assert killed.status == -9
    assert await rows(quarantined, "SELECT status::text FROM idem.inbox WHERE message_id = '4712'") == [status]
    assert await rows(quarantined, "SELECT count(*) FROM payment WHERE id = '4712'") == [payments]
    again = await quarantine(quarantined, "release", str(FAILED), *APP)
    assert again.out.startswith("#2 duplicate" if payments else "#2 applied")
    assert await rows(quarantined, "SELECT count(*) FROM payment WHERE id = '4712'") == [1]

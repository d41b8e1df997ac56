"""`consumer-idem outbox`: what waits to be published, and what the person decides."""

import json
from typing import Any

import asyncpg
import pytest

from consumer_idem.outbox.table import Outbox
from tests.cli.command import Result, inside
from tests.outbox.scene import record

PARKED, BEHIND, OTHER_KEY, OF_HELD_TOPIC, OF_A_RUN, PARKED_TOO = range(1, 7)


@pytest.fixture
async def waiting(dsn: str) -> str:
    """A database whose outbox has a record in every status: the numbers above."""
    connection = await asyncpg.connect(dsn)
    records = [
        record("t", "too large \x1b[31m", headers=[("h", None), ("mode", b"\xff")]),
        record("t", 2),
        record("t", 3, key="other"),
        record("u", 4),
        record("t", 5, key="run"),
        record("v", 6, key=None),
    ]
    async with connection.transaction():
        await Outbox().add(connection, records)
    await connection.execute("UPDATE idem.outbox SET state = 'x', error = 'too large' WHERE id IN (1, 6)")
    await connection.execute("UPDATE idem.outbox SET state = 'h', run = 7 WHERE id = 5")
    await connection.execute("INSERT INTO idem.outbox_relay VALUES (gen_random_uuid(), now() + interval '1 hour')")
    await connection.execute("INSERT INTO idem.outbox_hold (topic, owner, error) SELECT 'u', owner, 'missing' FROM idem.outbox_relay")
    await connection.close()
    return dsn


async def outbox(dsn: str, *arguments: str) -> Result:
    return await inside("outbox", *arguments, "--database", dsn)


async def rows(dsn: str, sql: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) if len(row) > 1 else row[0] for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_records_are_listed_with_what_they_wait_for(waiting: str) -> None:
    result = await outbox(waiting, "list")
    nothing = await outbox(waiting, "list", "--topic", "w")

    lines = result.out.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "#1 parked", "#2 blocked", "#3 pending", "#4 topic-held", "#5 held", "#6 parked",
    ]  # fmt: skip
    assert lines[0].startswith("#1 parked, t, key k, 15 bytes, since 20")
    assert lines[0].endswith(" UTC: too large")
    assert lines[5].startswith("#6 parked, v, without a key, 1 bytes")
    assert nothing.out == "Nothing like this is in the outbox.\n"


async def test_a_list_that_leaves_records_out_says_so(waiting: str) -> None:
    result = await outbox(waiting, "list", "--limit", "5")
    as_json = await outbox(waiting, "list", "--limit", "5", "--json")
    everything = await outbox(waiting, "list", "--limit", "6")

    left = "… and more: these are the oldest 5. --limit lists more, --status and --topic choose."
    assert result.out.splitlines()[5:] == [left]
    assert (len(json.loads(as_json.out)), as_json.err.strip()) == (5, left)
    assert "… and more" not in everything.out


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ("--status parked", [PARKED, PARKED_TOO]),
        ("--status topic-held", [OF_HELD_TOPIC]),
        ("--topic t --limit 2", [PARKED, BEHIND]),
        ("--status parked --topic v", [PARKED_TOO]),
    ],
)
async def test_records_are_filtered(waiting: str, filters: str, ids: list[int]) -> None:
    result = await outbox(waiting, "list", *filters.split(), "--json")

    assert [each["id"] for each in json.loads(result.out)] == ids


async def test_a_record_is_shown_with_all_that_is_known_and_drives_no_terminal(waiting: str) -> None:
    await outbox(waiting, "retry", str(PARKED), "--by", "ann", "--reason", "limit raised")
    result = await outbox(waiting, "show", str(PARKED))
    shown = json.loads((await outbox(waiting, "show", str(PARKED), "--json")).out)
    raw = await outbox(waiting, "show", str(PARKED), "--value")

    assert r"value        too large \x1b[31m" in result.out
    assert "header       h: null\nheader       mode: \\xff\n" in result.out
    assert result.out.endswith("retry by ann (limit raised): too large\n")
    assert (shown["status"], shown["headers"], shown["audit"][0]["operator"]) == ("pending", [["h", None], ["mode", r"\xff"]], "ann")
    assert raw.out == "too large \x1b[31m"


async def test_a_record_that_is_gone_tells_who_dropped_it(waiting: str) -> None:
    await outbox(waiting, "drop", str(PARKED), "--by", "ann", "--reason", "test data")
    dropped = await outbox(waiting, "show", str(PARKED))
    never = await outbox(waiting, "show", "99")

    assert (dropped.status, dropped.out) == (1, "")
    assert "drop by ann (test data): too large" in dropped.err
    assert never.err == "There is no record 99: it was published or dropped, or never written.\n"


async def test_a_retry_frees_the_record_and_its_key_and_is_audited(waiting: str) -> None:
    result = await outbox(waiting, "retry", str(PARKED), str(BEHIND), "--by", "ann")

    assert (result.status, result.out) == (1, "#1 retried\n#2 was not parked\n")
    assert [each["status"] for each in json.loads((await outbox(waiting, "list", "--json")).out)][:2] == ["pending"] * 2
    assert await rows(waiting, "SELECT action, operator, reason, record FROM idem.outbox_audit") == [("retry", "ann", "", 1)]


async def test_a_drop_deletes_what_is_not_a_replays_and_is_audited(waiting: str) -> None:
    result = await outbox(waiting, "drop", str(PARKED), str(OTHER_KEY), str(OF_A_RUN), "--reason", "wrong topic")

    assert (result.status, result.out) == (1, "#1 dropped\n#3 dropped\n#5 was not there, or belongs to a replay\n")
    assert await rows(waiting, "SELECT id FROM idem.outbox ORDER BY 1") == [2, 4, 5, 6]
    [(operator, reason), other] = await rows(waiting, "SELECT operator, reason FROM idem.outbox_audit")
    assert operator
    assert (operator, reason) == other == (operator, "wrong topic")


async def test_all_shows_first_and_retries_with_yes(waiting: str) -> None:
    dry = await outbox(waiting, "retry", "--all")
    before = await rows(waiting, "SELECT count(*) FROM idem.outbox WHERE state = 'x'")
    one_topic = await outbox(waiting, "retry", "--all", "--topic", "v", "--yes")
    done = await outbox(waiting, "retry", "--all", "--yes")
    nothing = await outbox(waiting, "retry", "--all")

    assert dry.out == "1 × parked, t: too large\n1 × parked, v: too large\nWould retry 2 records. Add --yes to do it.\n"
    assert before == [2]
    assert one_topic.out == done.out == "1 records retried.\n"
    assert nothing.out == "There is nothing to retry.\n"


async def test_all_shows_first_and_drops_what_has_the_status_with_yes(waiting: str) -> None:
    bulk = ("drop", "--reason", "topic deleted for good", "--all", "--status", "topic-held", "--topic", "u")
    dry = await outbox(waiting, *bulk)
    done = await outbox(waiting, *bulk, "--yes")
    left = await rows(waiting, "SELECT id FROM idem.outbox ORDER BY 1")
    parked = await outbox(waiting, "drop", "--reason", "given up", "--all", "--yes")

    assert dry.out == "1 × topic-held, u: missing\nWould drop 1 records. Add --yes to do it.\n"
    assert done.out == "1 records dropped.\n"
    assert left == [1, 2, 3, 5, 6]
    assert parked.out == "2 records dropped.\n"
    assert await rows(waiting, "SELECT id FROM idem.outbox ORDER BY 1") == [2, 3, 5]


async def test_many_records_are_dropped_in_pages(waiting: str) -> None:
    await rows(
        waiting,
        "INSERT INTO idem.outbox (message_id, shard, state, topic, source) "
        "SELECT gen_random_uuid(), 1, 'x', 'many', 's' FROM generate_series(1, 2500)",
    )
    result = await outbox(waiting, "drop", "--reason", "given up", "--all", "--topic", "many", "--yes")

    assert result.out == "2500 records dropped.\n"
    assert await rows(waiting, "SELECT count(*) FROM idem.outbox") == [6]


@pytest.mark.parametrize(
    "arguments",
    [
        ("retry",),
        ("retry", "1", "--all"),
        ("retry", "1", "--topic", "t"),
        ("drop", "1"),
        ("drop", "1", "--reason", " "),
        ("drop", "1", "--reason", "x", "--status", "pending"),
        ("drop", "--all", "--reason", "x", "--status", "held"),
        ("list", "--status", "lost"),
    ],
    ids=" ".join,
)
async def test_what_cannot_be_meant_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    result = await inside("outbox", *arguments)

    assert (result.status, result.out) == (2, "")

"""What the documentation says is there: tests, commands, flags, settings, links, code that runs.

`python -m tests.test_docs` writes the column of tests in docs/faults.md anew.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from consumer_idem import Applied, Message, Quarantined, Reason, Rejected, Skipped, failpoint
from consumer_idem.settings import Settings
from consumer_idem.testing import Supervisor
from consumer_idem.testing.services.choose import Postgres
from consumer_idem.testing.waiting import eventually
from tests.cli.command import inside
from tests.conftest import Services

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
FAULTS = ROOT / "docs" / "faults.md"
OPERATIONS = ROOT / "docs" / "operations.md"

FAULT_IDS = {
    "A": [*range(1, 7), *range(8, 16), *range(18, 28), 30],
    "B": [*range(1, 14), *range(15, 21), 22, 23, 25, 26, 27, 29],
    "C": [*range(1, 19), 20, 22, 24],
    "D": [1, 2, 3, 5, *range(8, 14), 15, 16],
    "E": [*range(1, 9), 10],
    "F": [1, 2, 3, 5, 6, 8, 9, 10, 12],
    "G": [1, 2, 3, 6, 7, 8],
}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEST_NAME = re.compile(r"(?<!tests\.)\btest_[a-z0-9_]+\b(?!\.py|/)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"consumer-idem ([^`\n|#]+)")
_ROW = re.compile(r"^\| (?P<id>[A-G]\d+) \|(?P<fault>[^|]+)\|(?P<tests>[^|]*)\|(?P<open>[^|]*)\|$", re.MULTILINE)


def page(path: Path) -> str:
    return path.read_text("utf-8")


def prose(path: Path) -> str:
    """The text outside of code blocks."""
    return _FENCE.sub("", page(path))


def blocks(path: Path, language: str) -> list[str]:
    return [code for kind, code in _FENCE.findall(page(path)) if kind == language]


def source() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "consumer_idem").rglob("*.py")))


@cache
def tree() -> dict[str, set[str]]:
    """The files of the tree's test functions, by their names."""
    found = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[node.name].add(path.relative_to(ROOT).as_posix())
    return dict(found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_test_that_is_named_is_there(path: Path) -> None:
    named = set(_TEST_NAME.findall(page(path)))
    linked = re.findall(r"\[`(test_[a-z0-9_]+)`\]\(\.\./([^)]+)\)", page(path))

    made_in_examples = {name for code in blocks(path, "python") for name in _TEST_NAME.findall(code)}
    assert named - set(tree()) - made_in_examples == set()
    assert [(name, file) for name, file in linked if file not in tree()[name]] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    broken = []
    for link in _LINK.findall(prose(path)):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)

    assert broken == []


def anchors(path: Path) -> set[str]:
    """The anchors that a code host gives the headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_readme() -> None:
    reached = {(ROOT / link.partition("#")[0]).resolve() for link in _LINK.findall(prose(ROOT / "README.md")) if "://" not in link}

    assert [path.name for path in PAGES if path not in reached | {ROOT / "README.md"}] == []


# Code


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_in_the_pages_compiles(path: Path) -> None:
    for code in blocks(path, "python"):
        compile(code, path.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def test_the_example_of_the_readme_does_what_is_said_of_it(dsn: str) -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    assert len(list(filter(None, code.splitlines()))) == 15
    example: dict[str, Any] = {}
    exec(code, example)  # the page's own code, as a user runs it
    app = example["app"]
    app.runtime({"database": dsn})
    shop = await asyncpg.connect(dsn)
    await shop.execute("CREATE TABLE account (id text PRIMARY KEY, balance numeric); INSERT INTO account VALUES ('alice', 100)")

    def pay(offset: int, id: str, amount: str) -> Message:
        value = json.dumps({"payment_id": id, "account": "alice", "amount": amount}).encode()
        return Message(topic="payments.requested", partition=0, offset=offset, value=value)

    sent = [pay(0, "1", "10"), pay(1, "1", "10.00"), pay(2, "1", "11"), pay(3, "2", "1000"), pay(4, "2", "1000")]
    outcomes = await app.process(sent)
    await app.close()

    assert [outcomes[n] for n in (0, 1, 3, 4)] == [
        Applied(), Skipped(), Rejected("insufficient-funds"), Skipped(Rejected("insufficient-funds")),
    ]  # fmt: skip
    assert isinstance(outcomes[2], Quarantined)
    assert outcomes[2].fields == ("amount",)
    assert await shop.fetchval("SELECT balance FROM account") == 90
    assert await shop.fetchval("SELECT array_agg(topic) FROM idem.outbox") == ["payments.applied"]
    await shop.close()


@pytest.mark.timeout(180)
async def test_the_quickstart_does_what_it_shows(
    empty_dsn: str, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands and its program as they stand there, on a PostgreSQL and a Kafka of the test's; times and numbers of entries aside."""
    quickstart = ROOT / "docs" / "quickstart.md"
    shown = [without_what_varies(block) for block in blocks(quickstart, "text")]
    commands = [line for block in blocks(quickstart, "sh") for line in block.splitlines()]
    (tmp_path / "send.py").write_text(next(code for code in blocks(quickstart, "python") if "producer" in code))
    monkeypatch.setenv("CONSUMER_IDEM_DATABASE", empty_dsn)
    monkeypatch.setenv("CONSUMER_IDEM_KAFKA", services.kafka().bootstrap)

    async def told(*words: str) -> str:
        assert " ".join(["consumer-idem", *words]) in commands
        result = await inside(*words)
        # The command has closed its database; the App would keep it for the next command.
        await import_module("examples.payments").app.close()
        return without_what_varies(result.out)

    assert await told("schema", "install") == shown[0]
    async with Supervisor(env={"PYTHONPATH": str(ROOT)}) as supervisor:
        assert "python send.py" in commands
        assert await (await supervisor.start(str(tmp_path / "send.py"))).wait() == 0
        assert "consumer-idem run examples.payments:app" in commands
        worker = await supervisor.start("-m", "consumer_idem.cli", "run", "examples.payments:app")
        connection = await asyncpg.connect(empty_dsn)
        await eventually(lambda: all_read(connection), timeout=60)
        await connection.close()
        worker.interrupt()
        assert await worker.wait() == 0

    assert await told("show", "examples.payments:app", "checkout", "4711") == shown[2]
    assert await told("show", "examples.payments:app", "checkout", "4712") == shown[3]
    assert sorted((await told("quarantine", "list")).splitlines()) == sorted(shown[4].splitlines())


async def all_read(connection: asyncpg.Connection) -> bool:
    return bool(await connection.fetchval("SELECT sum(next_offset) = 7 AND NOT EXISTS (SELECT FROM idem.outbox) FROM idem.progress"))


def without_what_varies(text: str) -> str:
    return re.sub(r"#\d+", "#", re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "…", text))


@pytest.mark.timeout(180)
def test_the_tests_that_users_are_shown_pass_and_find_the_bug(tmp_path: Path, postgres: Postgres) -> None:
    """The files of docs/testing.md as they stand there, and once more with the bug that the page plants."""
    (shop,) = blocks(ROOT / "README.md", "python")
    files = {"shop.py": shop}
    for code in blocks(ROOT / "docs" / "testing.md", "python"):
        name, _, code = code.removeprefix("# ").partition("\n")
        files[name] = code
    planted = files["test_crashes.py"].replace("tx.after_commit(mails.append, payment.payment_id)", "mails.append(payment.payment_id)")
    assert planted != files["test_crashes.py"]
    for name, code in (files | {"test_planted.py": planted}).items():
        (tmp_path / name).write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "."]
    env = {**os.environ, "CONSUMER_IDEM_TEST_DSN": postgres.dsn()}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=170)

    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    found = [f"test_planted.py::test_a_crash_sends_no_mail_twice[{point}]" for point in ("handlers.after", "seal.after")]
    assert failed == found, done.stdout + done.stderr


async def test_sql_in_the_pages_runs(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    for path in PAGES:
        for code in blocks(path, "sql"):
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("CREATE ROLE shop_worker")
            await connection.execute(code)
            await transaction.rollback()
    await connection.close()


async def test_every_table_is_described(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    tables = await connection.fetchval("SELECT array_agg(table_name::text) FROM information_schema.tables WHERE table_schema = 'idem'")
    await connection.close()

    assert [name for name in tables if f"`{name}`" not in page(ROOT / "docs" / "design.md")] == []


# Commands and settings


def command_named(words: list[str]) -> tuple[Any, str]:
    """The command that the words begin with, and its whole name; a group if they name no more."""
    import typer.main

    from consumer_idem.cli.main import commands

    command: Any = typer.main.get_command(commands)
    name = "consumer-idem"
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command, name = command.commands[word], f"{name} {word}"
    return command, name


def every_command() -> Iterator[tuple[str, Any]]:
    def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        for word, each in (inner or {}).items():
            yield from walk(each, f"{name} {word}")

    yield from walk(command_named([])[0], "consumer-idem")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_that_is_written_is_there_with_its_flags(path: Path) -> None:
    for written in _COMMAND.findall(page(path)):
        words = [word.strip("`.,:;()") for word in written.split()]
        command, name = command_named(words)
        further = words[name.count(" ") :]
        flags = {word.partition("=")[0] for word in words if word.startswith("--")}

        unknown = hasattr(command, "commands") and further and further[0].isalpha() and further[0].islower()
        assert not unknown, f"consumer-idem {written}"
        assert flags <= options(command) | {"--help", "--version"}, f"consumer-idem {written}"
    every_flag = set.union(*(options(command) for _, command in every_command()))
    assert set(re.findall(r"`(--[a-z-]+)", prose(path))) <= every_flag | {"--help"}


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts if not parameter.hidden}


def test_every_command_and_flag_is_described() -> None:
    text = page(OPERATIONS)
    missing = [name for name, _ in every_command() if f"`{name}" not in text]
    flags = set.union(*(options(command) for _, command in every_command()))

    assert missing == []
    assert sorted(flag for flag in flags if flag.startswith("--") and f"`{flag}" not in text) == []


def test_every_setting_is_described_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(CONSUMER_IDEM_\w+)` \|(.+)\|$", page(OPERATIONS), re.MULTILINE))
    for name, setting in Settings.model_fields.items():
        row = rows.pop(str(setting.validation_alias or f"CONSUMER_IDEM_{name.upper()}"))
        default = setting.get_default(call_default_factory=True, validated_data={})
        shown = f"{default.total_seconds():g} s" if isinstance(default, timedelta) else str(default).lower()

        assert default is None or default == {} or f" {shown} " in row.lower(), f"{name}: {row}"
    assert rows == {}


def test_make_targets_that_are_named_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", page(ROOT / "Makefile"), re.MULTILINE))
    named = {name for path in PAGES for name in re.findall(r"(?:`|^)make ([a-z-]+)", page(path), re.MULTILINE)}

    assert named - targets == set()


# What is told to whoever operates


def test_log_messages_and_metrics_are_those_of_the_code() -> None:
    text, code = page(OPERATIONS), source()
    told = {(level, message) for message, level in re.findall(r"^\| `([^`]+)` \| (info|warning|error|critical) \|", text, re.MULTILINE)}
    metrics = set(re.findall(r"_meter\.create_\w+\(\s*\"([^\"]+)\"", code))

    assert len(told) > 20
    assert told - set(re.findall(r"\blog\.(\w+)\(\s*\"([^\"]+)\"", code)) == set()
    assert {name for name in metrics if f"`{name}`" not in text} == set()


def test_failpoints_are_those_of_the_code() -> None:
    reached = set(re.findall(r"\breached\(\"([\w.]+)\"", source()))
    named = set(re.findall(r"`((?:\w+)\.(?:after|before)\w*)`", page(ROOT / "docs" / "testing.md")))

    assert named == reached
    assert set(failpoint.NAMES) == reached


def test_every_reason_is_described() -> None:
    assert [reason for reason in Reason if f"| `{reason}` |" not in page(OPERATIONS)] == []


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads(page(ROOT / "pyproject.toml"))
    extras = [name for extra in project["project"]["optional-dependencies"].values() for name in extra]
    needed = [*project["project"]["dependencies"], *extras, *project["build-system"]["requires"]]
    told = re.findall(r"^\| `([\w-]+)` \|", page(ROOT / "docs" / "dependencies.md"), re.MULTILINE)

    assert sorted(told) == sorted({re.split(r"[\[<>=~; ]", name)[0] for name in needed} - {"consumer-idem"})


def test_everything_that_is_installed_here_is_pinned() -> None:
    lines = [line for line in page(ROOT / "constraints.txt").splitlines() if not line.startswith("#")]
    project = tomllib.loads(page(ROOT / "pyproject.toml"))
    extras = project["project"]["optional-dependencies"]
    needed = [*project["project"]["dependencies"], *chain(*extras.values()), *project["build-system"]["requires"]]

    assert [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; [\w. '=!]+)?", line)] == []
    assert needed_by(needed) - {line.partition("==")[0] for line in lines} == set()


def needed_by(requirements: list[str]) -> set[str]:
    """The packages that are needed for these in this environment, as far as they are installed in it; the package itself aside."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        one = waiting.pop()
        for extra in {"", *one.extras} - {extra for name, extra in found if name == one.name}:
            found.add((one.name, extra))
            with suppress(PackageNotFoundError):
                further = [Requirement(text) for text in requires(one.name) or ()]
                waiting += [each for each in further if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {canonicalize_name(name) for name, _ in found} - {"consumer-idem"}


def test_what_is_said_to_be_missing_is_missing() -> None:
    section = page(ROOT / "README.md").partition("## Not there yet")[2].partition("\n## ")[0]
    from consumer_idem.kafka import aiokafka

    missing = {
        "Calls": find_spec("consumer_idem.calls") is None,
        "Replay and backfill": find_spec("consumer_idem.replay") is None,
        "Pruning": find_spec("consumer_idem.retention") is None,
        "A publisher on aiokafka": not hasattr(aiokafka, "AiokafkaPublisher"),
        "SQLAlchemy": find_spec("consumer_idem.postgres.sqlalchemy") is None,
    }

    assert re.findall(r"^\* \*\*(.+?)\*\*", section, re.MULTILINE) == [what for what, is_missing in missing.items() if is_missing]


# Faults


def with_tests(text: str) -> str:
    """docs/faults.md with the tests that are in the tree; where there is one, "not yet" is no longer true."""

    def written(row: re.Match[str]) -> str:
        links, remark = links_of(row["id"]), row["open"].strip()
        return line(row["id"], row["fault"].strip(), links, "" if links and remark.startswith("not yet") else remark)

    return _ROW.sub(written, text)


def line(*cells: str) -> str:
    return "| " + " | ".join(cells).replace("  ", " ") + " |"


def links_of(fault: str) -> str:
    """Links to the tests that begin with the fault's id, as `test_a3_…`, or with several, as `test_a2_b10_…`."""
    begins = re.compile(rf"test_(?:[a-g]\d+_)*{fault.lower()}_")
    names = sorted(filter(begins.match, tree()))
    return "<br>".join(f"[`{name}`](../{file})" for name in names for file in sorted(tree()[name]))


def test_the_tests_of_each_fault_are_told() -> None:
    assert with_tests(page(FAULTS)) == page(FAULTS), "run python -m tests.test_docs"


def test_every_fault_is_listed_with_a_test_or_a_reason() -> None:
    rows = {row["id"]: row for row in _ROW.finditer(page(FAULTS))}

    assert list(rows) == [f"{section}{number}" for section, numbers in FAULT_IDS.items() for number in numbers]
    assert [id for id, row in rows.items() if not row["tests"].strip() and not row["open"].strip()] == []


if __name__ == "__main__":
    FAULTS.write_text(with_tests(page(FAULTS)), "utf-8")

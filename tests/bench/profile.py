"""The command `profile`: where a message's time goes, from a sampling profiler and from PostgreSQL's own statistics."""

import asyncio
import re
import shutil
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg

from tests.bench import measure as measuring
from tests.bench.contest import Plan
from tests.bench.field import FLOOR, OURS, Contestant
from tests.bench.measure import Contest, Failed
from tests.bench.results import load_before, machine, now, versions
from tests.bench.rounds import tell
from tests.bench.stage import Stage
from tests.bench.work import Work

SAMPLES_A_SECOND = 400
PROFILED: Sequence[Contestant] = (OURS["defer", "aiokafka"], OURS["batch", "aiokafka"], OURS["await", "aiokafka"], FLOOR)

# The innermost frame that is listed decides: so what the library calls of others counts as the part of ours that called it.
LOOP = "event loop"
STAGES: Mapping[str, Sequence[str]] = {
    # Where no frame inside of it is ours.
    LOOP: ("cli/", "bench/job.py"),
    "decode": ("inbox/decode.py",),
    "fingerprint": ("inbox/bound_fingerprint.py", "inbox/fingerprint.py", "inbox/canonical.py"),
    "key": ("inbox/key.py", "inbox/identity.py", "inbox/functions.py"),
    "claim": ("inbox/table.py", "consumer/evidence.py", "inbox/verdict.py"),
    "outbox": ("outbox/", "Tx.publish", "Tx._record_id", "Item.publish", "uuids.py"),
    "deferred writes": ("transaction/unit.py", "transaction/deferred.py"),
    "handler": ("bench/contestants/", "bench/work.py", "Tx.execute", "Tx.defer", "Tx._ready"),
    "seal": ("consumer/seal.py", "inbox/progress.py"),
    "commit": ("AsyncpgConnection.commit", "AsyncpgConnection._commit", "AsyncpgConnection._release"),
    "begin": ("transaction/begin.py", "AsyncpgDatabase.begin"),
    "fetch from Kafka": ("kafka/", "aiokafka/", "message.py"),
    "bookkeeping": ("consumer/", "inbox/source.py", "transaction/", "consumer_idem/loop.py", "telemetry.py", "consumer_idem/"),
}
PASSED_OVER = (
    "asyncpg/",
    "uvloop/",
    "asyncio/",
    "AsyncpgConnection.execute",
    "AsyncpgConnection.fetch",
    "opentelemetry/",
    "pydantic",
    "uuid.py",
)
"""What the driver does belongs to whoever sends the statement."""

STATEMENTS = """
SELECT query, calls, rows, total_exec_time AS milliseconds FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query !~ 'pg_stat_statements'
ORDER BY total_exec_time DESC LIMIT 12
"""


async def measure(plan: Plan) -> dict[str, Any]:
    """Return the section of the results."""
    section: dict[str, Any] = {"machine": machine(), "versions": versions(), "began": now(), "load_before": load_before()}
    async with Stage(settings={"shared_preload_libraries": "pg_stat_statements", "track_activity_query_size": "4096"}) as stage:
        for contestant in PROFILED:
            section[contestant.name] = await _profile(stage, replace(contestant, messages=plan.messages(contestant)))
            tell(f"profile: {contestant.name}: {section[contestant.name]['worker']}")
    return {"profile": section}


async def _profile(stage: Stage, contestant: Contestant) -> dict[str, Any]:
    statements: list[dict[str, Any]] = []

    async def look(dsn: str) -> None:
        statements.extend(await _statements(dsn, contestant.messages))

    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "samples"
        contest = Profiled(raw, look)
        run = await measuring.measure(stage, contestant.module, Work(messages=contestant.messages), contestant.options, make=contest.make)
        shares = _shares(raw.read_text())
    per_message = 1e6 * run.worker_cpu / run.messages
    return {
        "messages": run.messages,
        "worker_microseconds": round(per_message, 1),
        "database_microseconds": round(1e6 * run.database_cpu / run.messages, 1),
        "worker": {stage_: round(share * per_message, 2) for stage_, share in shares.items()},
        "statements": statements,
    }


class Profiled:
    """Runs contests with a profiler attached from the first poll on."""

    def __init__(self, raw: Path, look: Any) -> None:
        self._raw = raw
        self._look = look

    def make(self, *args: Any) -> Contest:
        """Return a contest that is profiled."""
        return _ProfiledContest(self._raw, self._look, *args)


class _ProfiledContest(Contest):
    def __init__(self, raw: Path, look: Any, *args: Any) -> None:
        super().__init__(*args)
        self._raw = raw
        self._look = look

    async def done(self, process: asyncio.subprocess.Process, expected: Any, ends: list[int]) -> None:
        """Wait as always, while the profiler looks."""
        command = [
            _py_spy(),
            "record",
            "--pid",
            str(process.pid),
            "--rate",
            str(SAMPLES_A_SECOND),
            "--format",
            "raw",
            "--output",
            str(self._raw),
        ]
        spy = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
        try:
            await super().done(process, expected, ends)
        finally:
            spy.send_signal(2)
            await spy.wait()
        await self._look(self._near_dsn)


def _py_spy() -> str:
    found = shutil.which("py-spy", path=f"{sysconfig.get_path('scripts')}:{Path(sys.executable).parent}")
    if found is None:
        raise Failed("py-spy is not installed: pip install 'consumer-idem[bench]'")
    return found


def _shares(samples: str) -> dict[str, float]:
    """Return each stage's share of the samples, most first. A line is a stack, outermost frame first, and its count."""
    counts: Counter[str] = Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        # Threads that wait count as working for the profiler.
        if "threading.py" not in stack:
            counts[_stage(stack.split(";"))] += int(count)
    total = counts.total()
    return {name: count / total for name, count in counts.most_common()}


def _stage(stack: Sequence[str]) -> str:
    for frame in reversed(stack):
        if any(place in frame for place in PASSED_OVER):
            continue
        for name, places in STAGES.items():
            if any(place in frame for place in places):
                return name
    return LOOP


async def _statements(dsn: str, messages: int) -> list[dict[str, Any]]:
    """Return PostgreSQL's time per message, statement by statement."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        rows = await connection.fetch(STATEMENTS)
    finally:
        await connection.close()
    return [
        {
            "statement": _short(row["query"]),
            "calls": row["calls"],
            "microseconds_per_message": round(1e3 * row["milliseconds"] / messages, 2),
        }
        for row in rows
    ]


def _short(query: str) -> str:
    """Return the beginning of a statement, without the comments above it."""
    text = re.sub(r"--[^\n]*", "", query)
    return " ".join(text.split())[:90]

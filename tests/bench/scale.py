"""The command `scale`: what grows with the inbox, with the messages, with partitions and processes; and what a start costs."""

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import psutil

from tests.bench import claims
from tests.bench.contest import Plan
from tests.bench.field import OURS
from tests.bench.job import Job
from tests.bench.measure import Contest, Failed, end, first_poll
from tests.bench.results import load_before, machine, now, versions
from tests.bench.rounds import tell
from tests.bench.stage import Stage
from tests.bench.work import OUT, Work

WORKER = OURS["defer", "aiokafka"]
MANY = 1_000_000
STARTS = 5
GRID = [(partitions, processes) for partitions in (2, 4, 8) for processes in (1, 2)]
IMPORT = (
    "import time; began = time.perf_counter(); import consumer_idem; [getattr(consumer_idem, name) for name in consumer_idem.__all__]; "
)
IMPORT += "print(time.perf_counter() - began)"


async def measure(plan: Plan) -> dict[str, Any]:
    """Return the section of the results."""
    section: dict[str, Any] = {"machine": machine(), "versions": versions(), "began": now(), "load_before": load_before()}
    async with Stage() as stage:
        section["start"] = await _start(stage)
        section["grid"] = await _grid(stage, plan)
        section["memory"] = await _memory(stage, int(MANY * plan.share))
        section["claims"] = await claims.measure(stage, plan.share)
    return {"scale": section}


# What a start costs


async def _start(stage: Stage) -> dict[str, Any]:
    """`first_poll`: from the start of the process until it asks for messages, the way into the group included."""
    topic, moments, busy = stage.topic(Work(messages=1_000)), [], []
    for _ in range(STARTS):
        database = await stage.database()
        job = _job(stage, database, topic, 8)
        began = time.monotonic()
        process = await _spawn(job)
        moments.append(await first_poll(process) - began)
        busy.append(sum(psutil.Process(process.pid).cpu_times()[:2]))
        await end(process)
        await stage.drop(database)
    imports = [
        float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout) for _ in range(STARTS)
    ]
    found = {"first_poll_s": _three(moments), "processor_s": _three(busy), "import_s": _three(imports)}
    tell(f"start: {found}")
    return found


def _three(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in (median(values), min(values), max(values))]


def _job(stage: Stage, database: str, topic: str, partitions: int, group: str | None = None) -> Job:
    return Job(
        dsn=stage.postgres.dsn(database),
        bootstrap=stage.broker.bootstrap,
        topic=topic,
        group=group or f"bench-{uuid.uuid4().hex[:12]}",
        partitions=partitions,
        options=WORKER.options,
    )


async def _spawn(job: Job) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        WORKER.module,
        env=job.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


# Partitions and processes


async def _grid(stage: Stage, plan: Plan) -> list[dict[str, Any]]:
    """Messages a second from the first one produced, over partitions and processes that were there before."""
    found = []
    for partitions, processes in GRID:
        rates = [await _side_by_side(stage, partitions, processes, int(WORKER.messages * plan.share)) for _ in range(plan.rounds)]
        row = {"partitions": partitions, "processes": processes, "per_second": [round(value) for value in _three(rates)]}
        tell(f"grid: {row}")
        found.append(row)
    return found


async def _side_by_side(stage: Stage, partitions: int, processes: int, messages: int) -> float:
    work = Work(messages=messages)
    topic, database = stage.empty_topic(partitions), await stage.database()
    job = _job(stage, database, topic, partitions)
    workers = [await _spawn(job) for _ in range(processes)]
    contest = Contest(stage, WORKER.module, job, job.dsn)
    try:
        for worker in workers:
            await first_poll(worker)
        await asyncio.to_thread(stage.until_members, job.group, processes)
        began = time.monotonic()
        await asyncio.to_thread(stage.produce, topic, work)
        await contest.done(workers[0], work.expected(), stage.ends(topic))
        took = time.monotonic() - began
    finally:
        for worker in workers:
            await end(worker)
        await stage.drop(database)
    return messages / took


# Memory


async def _memory(stage: Stage, messages: int) -> dict[str, Any]:
    """Resident memory of a worker that also publishes, over many messages, all of them waiting in the topic when it starts."""
    work = Work(messages=messages)
    stage.empty_topic(8, OUT)
    topic = await asyncio.to_thread(stage.new_topic, work)
    database = await stage.database()
    job = replace(_job(stage, database, topic, 8), options={**WORKER.options, "relay": True})
    process = await _spawn(job)
    samples: list[int] = []
    try:
        await first_poll(process)
        while lag := await asyncio.to_thread(stage.lag, job.group, topic, stage.ends(topic)):
            samples.append(psutil.Process(process.pid).memory_info().rss)
            if process.returncode is not None:
                raise Failed(f"The worker ended with {lag} messages waiting.")
            await asyncio.sleep(0.5)
    finally:
        await end(process)
        bytes_per_row = await claims.bytes_per_row(stage, database)
        await stage.drop(database)
    tenths = [round(samples[len(samples) * tenth // 10] / 2**20, 1) for tenth in range(10)] + [round(samples[-1] / 2**20, 1)]
    found = {
        "messages": messages,
        "mib_at_each_tenth": tenths,
        "most_mib": round(max(samples) / 2**20, 1),
        "inbox_bytes_per_row": bytes_per_row,
    }
    tell(f"memory: {found}")
    return found

"""One run of one contestant: from its first poll until all effects and offsets are committed."""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from tests.bench import check
from tests.bench.job import Job
from tests.bench.stage import Stage
from tests.bench.work import Expected, Work

PATIENCE = 600.0
END_WITHIN = 20.0
PARTITIONS = 8
LOOK_EVERY = 0.05
"""Seldom, since whoever looks takes processor time from those who are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run has shown. `wrong`: what the result lacks, then the time does not count."""

    messages: int
    seconds: float
    worker_cpu: float
    database_cpu: float
    memory: int
    wrong: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


class Failed(Exception):
    """A contestant ended, or did not get done in time."""


class Contest:
    """A contestant's process at its work."""

    def __init__(self, stage: Stage, module: str, job: Job, near_dsn: str) -> None:
        self._stage = stage
        self._module = module
        self._job = job
        self._near_dsn = near_dsn

    async def run(self, expected: Expected, messages: int) -> Run:
        """Run it and watch until the work is done."""
        ends = self._stage.ends(self._job.topic)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            env=self._job.environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        errors = asyncio.ensure_future(process.stderr.read())
        try:
            began = await first_poll(process)
            before = cpu(process.pid), cpu(self._stage.postgres.pid)
            await self.done(process, expected, ends)
            ended = time.monotonic()
            after = cpu(process.pid), cpu(self._stage.postgres.pid)
            memory = psutil.Process(process.pid).memory_info().rss
        except Failed as failure:
            process.kill()
            raise Failed(f"{failure} {(await errors).decode()[-2000:]}") from None
        finally:
            await end(process)
            await errors
        wrong = await check.problems(self._near_dsn, expected)
        return Run(
            messages=messages,
            seconds=ended - began,
            worker_cpu=after[0] - before[0],
            database_cpu=after[1] - before[1],
            memory=memory,
            wrong=wrong,
        )

    async def done(self, process: asyncio.subprocess.Process, expected: Expected, ends: list[int]) -> None:
        """Wait until all offsets and all effects are committed."""
        until = time.monotonic() + PATIENCE
        while await asyncio.to_thread(self._stage.lag, self._job.group, self._job.topic, ends):
            await self._look_again(process, until)
        while await check.effects(self._near_dsn) < expected.applied:
            await self._look_again(process, until)

    async def _look_again(self, process: asyncio.subprocess.Process, until: float) -> None:
        if process.returncode is not None:
            raise Failed(f"It ended with status {process.returncode}.")
        if time.monotonic() > until:
            raise Failed("It did not get done.")
        await asyncio.sleep(LOOK_EVERY)


async def first_poll(process: asyncio.subprocess.Process) -> float:
    """Wait until a contestant polls; return when it did."""
    assert process.stdout is not None
    async for line in process.stdout:
        if line.startswith(b'{"first_poll"'):
            return float(json.loads(line)["first_poll"])
    raise Failed("It ended before its first poll.")


async def end(process: asyncio.subprocess.Process) -> None:
    """Stop in order, so that a run that follows does not have to find out what this one left."""
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), END_WITHIN)
    except TimeoutError:
        process.kill()
        await process.wait()


def cpu(pid: int) -> float:
    """Return the seconds that a process and its children have worked."""
    total = 0.0
    leader = psutil.Process(pid)
    for process in (leader, *leader.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    kept = leader.cpu_times()
    return total + kept.children_user + kept.children_system


MakeContest = Callable[[Stage, str, Job, str], Contest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is different from the clean run.

    `poison`: the share of messages whose handler raises. `repeated`: all messages are consumed once before, unmeasured, and come
    again. `round_trip`: what a round trip to the database takes longer, in milliseconds. `times`: so many times the messages of the clean
    run beside it, so that both take about as long, and what a run costs once weighs alike.
    """

    name: str
    times: int = 1
    poison: float = 0.0
    repeated: bool = False
    round_trip: float = 0.0

    def work(self, messages: int) -> Work:
        """Return the work under this condition."""
        return Work(messages=messages * self.times, poison=self.poison)


CLEAN = Condition(name="clean")
POISON = Condition(name="poison", poison=0.01)
DUPLICATES = Condition(name="duplicates", repeated=True, times=2)
NETWORK = Condition(name="network", round_trip=2.0)


async def measure(
    stage: Stage, module: str, work: Work, options: Mapping[str, Any], condition: Condition = CLEAN, *, make: MakeContest = Contest
) -> Run:
    """Run one contestant on a fresh database."""
    topic = stage.new_topic(work, PARTITIONS) if condition.repeated else stage.topic(work, PARTITIONS)
    database = await stage.database()
    job = Job(
        dsn=await stage.far_dsn(database, condition.round_trip) if condition.round_trip else stage.postgres.dsn(database),
        bootstrap=stage.broker.bootstrap,
        topic=topic,
        group=f"bench-{uuid.uuid4().hex[:12]}",
        partitions=PARTITIONS,
        options=options,
    )
    contest = make(stage, module, job, stage.postgres.dsn(database))
    try:
        run = await contest.run(work.expected(), work.messages)
        if condition.repeated and not run.wrong:
            stage.produce(topic, work)
            run = await contest.run(work.expected(), work.messages)
        return run
    finally:
        await stage.drop(database)

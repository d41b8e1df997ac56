"""What a contestant's process is told, and what it tells: the moment of its first poll."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from consumer_idem.cli.process import run_process

_VARIABLE = "BENCH_JOB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Where to read, where to write, and the contestant's own options."""

    dsn: str
    bootstrap: str
    topic: str
    group: str
    partitions: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that is to do this job."""
        return {**os.environ, _VARIABLE: json.dumps(asdict(self))}


class FirstPoll:
    """Tells the moment of the first poll, once. The clock is the machine's, so that another process can compare."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, moment: float | None = None) -> None:
        """The contestant asks for messages now, or did so at `moment`."""
        if not self._told:
            self._told = True
            print(json.dumps({"first_poll": moment or time.monotonic()}), flush=True)


first_poll = FirstPoll()


def read_job() -> Job:
    """Return the job that the environment names."""
    return Job(**json.loads(os.environ[_VARIABLE]))


def start(run: Callable[[Job], Coroutine[Any, Any, None]]) -> None:
    """Run a contestant with the job of its environment until it is stopped; `tuned` gives it the process that ours has."""
    job = read_job()
    if job.options.get("tuned"):
        run_process(run(job))
    else:
        asyncio.run(run(job))

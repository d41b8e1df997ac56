"""Rounds: contestants take turns, and a figure is the median over the rounds, with its spread."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.bench.measure import Failed, Run

Measure = Callable[[], Awaitable[Run]]


@dataclass(slots=True)
class Tally:
    """The runs of one contestant, one per round; None where it failed."""

    runs: list[Run | None] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """Count a run, if its result is right."""
        if run.wrong:
            self.wrong += run.wrong
        self.runs.append(None if run.wrong else run)

    def failed(self, why: str) -> None:
        """Keep why a run did not come to its end."""
        self.wrong.append(why)
        self.runs.append(None)


@dataclass(frozen=True, slots=True)
class Figure:
    """A median and the spread around it."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        """Return the figure of some rounds."""
        return cls(median(values), min(values), max(values))


async def take_turns(contestants: Mapping[str, Measure], rounds: int) -> dict[str, Tally]:
    """Run everybody once per round, each round beginning with another, so that what changes on the machine hits all alike."""
    tallies = {name: Tally() for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            try:
                run = await contestants[name]()
            except Failed as failure:
                tallies[name].failed(str(failure))
                tell(f"round {number + 1}: {name}: {failure}")
                continue
            tallies[name].add(run)
            wrong = f"WRONG: {'; '.join(run.wrong)}" if run.wrong else ""
            tell(f"round {number + 1}: {name:32} {run.rate:9.0f}/s {run.seconds:7.2f} s {wrong}")
    return tallies


def ratios(tallies: Mapping[str, Tally], base: str) -> dict[str, Figure]:
    """Return how many times as fast as `base` everybody was, round by round."""
    found = {}
    for name, tally in tallies.items():
        pairs = [(run, other) for run, other in zip(tally.runs, tallies[base].runs, strict=True) if run is not None and other is not None]
        if pairs:
            found[name] = Figure.of([run.rate / other.rate for run, other in pairs])
    return found


def described(tallies: Mapping[str, Tally]) -> dict[str, Any]:
    """Return messages a second, processor time per message and memory of everybody, for the results."""
    return {name: _described(tally) for name, tally in tallies.items()}


def _described(tally: Tally) -> dict[str, Any]:
    runs = [run for run in tally.runs if run is not None]
    if not runs:
        return {"wrong": sorted(set(tally.wrong))}
    rate = Figure.of([run.rate for run in runs])
    return {
        "messages": runs[0].messages,
        "rounds": len(runs),
        "per_second": round(rate.median, 1),
        "per_second_spread": [round(rate.least, 1), round(rate.most, 1)],
        "worker_microseconds": round(median(1e6 * run.worker_cpu / run.messages for run in runs), 1),
        "database_microseconds": round(median(1e6 * run.database_cpu / run.messages for run in runs), 1),
        "memory_mib": round(median(run.memory for run in runs) / 2**20, 1),
        **({"wrong": sorted(set(tally.wrong))} if tally.wrong else {}),
    }


def tell(line: str) -> None:
    """Say how far the benchmark is."""
    print(line, file=sys.stderr, flush=True)

"""The commands `main` and `variants`: contestants against each other, and each against itself under worse conditions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.bench import pgbench
from tests.bench.field import FLOOR, LOOP, MAIN, OURS, PGBENCH, Contestant
from tests.bench.measure import CLEAN, DUPLICATES, NETWORK, POISON, Condition, Run, measure
from tests.bench.results import load_before, machine, now, rounded, versions
from tests.bench.rounds import Figure, Measure, described, ratios, take_turns, tell
from tests.bench.stage import Stage

NEAR = {"loop": 3_000, "await": 20_000, "defer": 80_000, "batch": 40_000}
FAR = {"loop": 300, "await": 4_000, "defer": 40_000, "batch": 40_000}
"""Variants take turns with clean runs of the same length: fewer messages will do, and still fewer with round trips for each."""
ON_UVLOOP = replace(LOOP, name="loop_on_uvloop", options={"tuned": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to run: `share` of the messages, over so many rounds; contestants whose names hold one of `only`, if given."""

    rounds: int = 5
    share: float = 1.0
    only: Sequence[str] = ()

    def wants(self, name: str) -> bool:
        """Tell whether a contestant is to run."""
        return not self.only or name == LOOP.name or any(part in name for part in self.only)

    def messages(self, contestant: Contestant) -> int:
        """Return how many messages a contestant gets."""
        return max(200, int(contestant.messages * self.share))


async def main(plan: Plan, *, small_broker: bool = False) -> dict[str, Any]:
    """Run everybody on clean messages; return the section of the results."""
    absent = {contestant.name: why for contestant in MAIN if (why := contestant.absent())}
    if pgbench.program() is None:
        absent[PGBENCH.name] = "the PostgreSQL binaries came without pgbench"
    for name, why in absent.items():
        tell(f"absent: {name}: {why}")
    began, load = now(), load_before()
    async with Stage(small_broker=small_broker) as stage:
        runners = {
            contestant.name: _runner(stage, contestant, CLEAN, plan)
            for contestant in MAIN
            if contestant.name not in absent and plan.wants(contestant.name)
        }
        tallies = await take_turns(runners, plan.rounds)
    found = ratios(tallies, LOOP.name)
    return {
        "machine": machine(),
        "versions": versions(),
        "rounds": plan.rounds,
        "measured": {"began": began, "load_before": load, "broker": "small" if small_broker else "Apache Kafka"},
        "ratios": {name: round(figure.median, 2) for name, figure in found.items()},
        "spread": {name: rounded([figure.least, figure.most]) for name, figure in found.items()},
        "of_set_floor": _of(ratios(tallies, FLOOR.name), "ours_") if FLOOR.name in tallies else {},
        "contestants": described(tallies),
        "absent": absent,
    }


def _runner(stage: Stage, contestant: Contestant, condition: Condition, plan: Plan) -> Measure:
    if contestant.name == PGBENCH.name:
        return partial(pgbench.measure, stage, plan.messages(contestant))
    work = condition.work(plan.messages(contestant))

    async def run() -> Run:
        return await measure(stage, contestant.module, work, contestant.options, condition)

    return run


def _of(found: Mapping[str, Figure], beginning: str) -> dict[str, list[float]]:
    return {name: rounded([figure.median, figure.least, figure.most]) for name, figure in found.items() if name.startswith(beginning)}


async def variants(plan: Plan) -> dict[str, Any]:
    """Run ours under each condition beside its clean run, and the loop beside it; return the section of the results."""
    sections: dict[str, Any] = {}
    began, load = now(), load_before()
    async with Stage() as stage:
        for condition in (POISON, DUPLICATES, NETWORK):
            if not plan.only or any(part in condition.name for part in plan.only):
                sections[condition.name] = await _variant(stage, condition, plan)
        if not plan.only or "uvloop" in plan.only:
            sections["uvloop"] = await _loops(stage, plan)
    return {
        "variants": {"machine": machine(), "versions": versions(), "began": began, "load_before": load, "rounds": plan.rounds, **sections}
    }


async def _variant(stage: Stage, condition: Condition, plan: Plan) -> dict[str, Any]:
    """`of_clean`: against itself on clean messages. `ratios`: against the loop under the same condition."""
    messages = FAR if condition.round_trip else NEAR
    loop = replace(LOOP, messages=messages["loop"])
    ours = [replace(contestant, messages=messages[handler]) for (handler, _), contestant in OURS.items() if contestant.absent() is None]
    runners = {loop.name: _runner(stage, loop, condition, plan)}
    for contestant in ours:
        runners[contestant.name] = _runner(stage, contestant, condition, plan)
        if not condition.round_trip:
            runners[f"{contestant.name} clean"] = _runner(stage, contestant, CLEAN, plan)
    tallies = await take_turns(runners, plan.rounds)
    found = {name: figure for name, figure in ratios(tallies, loop.name).items() if not name.endswith(" clean")}
    of_clean = {}
    for contestant in ours:
        clean = f"{contestant.name} clean"
        if clean in tallies and (figure := ratios(tallies, clean).get(contestant.name)):
            of_clean[contestant.name] = rounded([figure.median, figure.least, figure.most])
    return {
        "ratios": {name: round(figure.median, 2) for name, figure in found.items()},
        "spread": {name: rounded([figure.least, figure.most]) for name, figure in found.items()},
        "of_clean": of_clean,
        "contestants": described(tallies),
    }


async def _loops(stage: Stage, plan: Plan) -> dict[str, Any]:
    """What the event loop contributes: ours without uvloop, the hand-written loop with it."""
    plain = [
        replace(contestant, name=f"{contestant.name}_on_asyncio", options={**contestant.options, "plain": True})
        for (_, client), contestant in OURS.items()
        if client == "aiokafka"
    ]
    with_uvloop = [contestant for (_, client), contestant in OURS.items() if client == "aiokafka"]
    runners = {one.name: _runner(stage, one, CLEAN, plan) for one in (LOOP, ON_UVLOOP, *with_uvloop, *plain)}
    tallies = await take_turns(runners, plan.rounds)
    found = ratios(tallies, LOOP.name)
    return {
        "ratios": {name: round(figure.median, 2) for name, figure in found.items()},
        "spread": {name: rounded([figure.least, figure.most]) for name, figure in found.items()},
        "contestants": described(tallies),
    }

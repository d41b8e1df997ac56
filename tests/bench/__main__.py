"""`python -m tests.bench [all|main|variants|relay|scale|profile|report]`: measure, write docs/benchmarks.json and .md, draw the plots."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.bench import contest, profile, relay, report, scale
from tests.bench.contest import Plan
from tests.bench.results import save

QUICK = 0.1
SECTIONS = ("main", "variants", "relay", "scale", "profile")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measure against hand-written loops; write docs/benchmarks.*."
    )
    parser.add_argument("command", nargs="?", choices=("all", *SECTIONS, "report"), default="all", help="all takes about an hour")
    parser.add_argument("--quick", action="store_true", help="one round with a tenth of the messages, to see that it works; writes nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="contestants whose names hold this, and the loop; writes nothing"
    )
    parser.add_argument("--small-broker", action="store_true", help="the small broker instead of Apache Kafka")
    return parser


def main() -> None:
    """Run one command."""
    given = _parser().parse_args()
    plan = Plan(rounds=1 if given.quick else given.rounds, share=QUICK if given.quick else 1.0, only=tuple(given.only))
    commands: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
        "main": lambda: contest.main(plan, small_broker=given.small_broker),
        "variants": lambda: contest.variants(plan),
        "relay": lambda: relay.measure(plan),
        "scale": lambda: scale.measure(plan),
        "profile": lambda: profile.measure(plan),
    }
    if given.command == "report":
        report.write()
        return
    for name in SECTIONS if given.command == "all" else (given.command,):
        section = asyncio.run(commands[name]())  # type: ignore[arg-type]  # every command is a coroutine function
        print(report.summary(section))
        if not given.quick and not given.only:
            save({"small_broker": section} if given.small_broker else section)
            report.write()


if __name__ == "__main__":
    main()

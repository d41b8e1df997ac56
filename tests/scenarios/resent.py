"""Why a record was handed to Kafka more than once, from the journals of the relays and the incidents of the test."""

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Incident(NamedTuple):
    """Something that the broker or the way to it did, and when."""

    began: float
    ended: float


class _Line(NamedTuple):
    at: float
    what: str


@dataclass(slots=True)
class Life:
    """One relay process: its journal, and when it was killed."""

    path: Path
    killed_at: float = float("inf")
    renewed: list[float] = field(default_factory=list)
    lines: dict[int, list[_Line]] = field(default_factory=lambda: defaultdict(list))

    def read(self) -> None:
        """Read the journal; the last line of a relay that was killed may be cut off."""
        for text in self.path.read_text().splitlines(keepends=True):
            if not text.endswith("\n"):
                continue
            at, what, values = json.loads(text)
            if what == "renewed":
                self.renewed.append(at)
            for value in values:
                self.lines[int(value)].append(_Line(at, what))

    def in_hand(self) -> int:
        """Return how many records were sent and neither deleted nor given back when its life ended."""
        return sum(lines[-1].what == "sent" for lines in self.lines.values())


class _Sending(NamedTuple):
    at: float
    life: Life


def sendings(lives: Iterable[Life]) -> dict[int, list[_Sending]]:
    """Return per record by whom and when it was handed to Kafka, in the order of time."""
    found: dict[int, list[_Sending]] = defaultdict(list)
    for life in lives:
        for number, lines in life.lines.items():
            found[number] += [_Sending(line.at, life) for line in lines if line.what == "sent"]
    for sent in found.values():
        sent.sort(key=lambda each: each.at)
    return found


def causes(sent: dict[int, list[_Sending]], incidents: Sequence[Incident], lease: float) -> Counter[str]:
    """Return how many sendings were not a record's first, by what explains them; `unexplained` if nothing does."""
    return Counter(cause for number, each in sent.items() for cause in _causes(number, each, incidents, lease))


def _causes(number: int, sent: Sequence[_Sending], incidents: Sequence[Incident], lease: float) -> Iterator[str]:
    for former, later in pairwise(sent):
        end = next((line for line in former.life.lines[number] if line.what != "sent" and former.at <= line.at <= later.at), None)
        if end is not None and end.what == "failed":
            met = any(incident.began <= end.at and incident.ended >= former.at for incident in incidents)
            yield "not answered" if met else "unexplained"
        elif end is not None:
            yield "unexplained"
        elif former.life.killed_at <= later.at:
            yield "killed"
        else:
            yield "lease ran out" if former.life is not later.life and _had_run_out(former.life, later.at, lease) else "unexplained"


def _had_run_out(life: Life, at: float, lease: float) -> bool:
    place = bisect_left(life.renewed, at)
    return place == 0 or life.renewed[place - 1] + lease <= at

"""The figures to reach, and where in the results each is found."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Results = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked of a figure: at least or at most so much. `find` raises KeyError while it is not measured."""

    what: str
    limit: float
    at_least: bool
    find: Callable[[Results], float]
    unit: str = ""

    def found(self, results: Results) -> float | None:
        """Return the figure, None if it was not measured."""
        try:
            return self.find(results)
        except (KeyError, IndexError):
            return None

    def met(self, value: float) -> bool:
        """Tell whether a figure is good enough."""
        return value >= self.limit if self.at_least else value <= self.limit

    @property
    def asked(self) -> str:
        """The limit as text."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{self.unit}"


def _ratio(name: str) -> Callable[[Results], float]:
    return lambda results: float(results["ratios"][name])


def _variant(condition: str, kind: str, name: str) -> Callable[[Results], float]:
    def find(results: Results) -> float:
        value = results["variants"][condition][kind][name]
        return float(value[0] if isinstance(value, list) else value)

    return find


def _latency(table: str, rate: int) -> Callable[[Results], float]:
    def find(results: Results) -> float:
        return float(next(row["times"] for row in results["relay"]["latency_ms"][table] if row["rate"] == rate))

    return find


def _dead(rate: int) -> Callable[[Results], float]:
    def find(results: Results) -> float:
        tables = results["relay"]["latency_ms"]
        full, empty = (next(row for row in tables[name] if row["rate"] == rate) for name in ("a million dead rows", "empty table"))
        return float(full["relay"]["median"] / empty["relay"]["median"])

    return find


def _claims(results: Results) -> float:
    claims = results["scale"]["claims"]
    small, large = (claims[str(rows)]["microseconds"] for rows in claims["rows"])
    return float(large / small)


def _growth(results: Results) -> float:
    tenths = results["scale"]["memory"]["mib_at_each_tenth"]
    return float(tenths[-1] / tenths[2])


def _of_clients(sentence: str, limit: float, make: Callable[[str], Callable[[Results], float]]) -> Iterator[Target]:
    for client in ("aiokafka", "confluent"):
        yield Target(f"{sentence} ({client})", limit, True, make(client))


MAIN: Sequence[Target] = (
    *_of_clients("awaiting handler, loop = 1", 6, lambda client: _ratio(f"ours_await_{client}")),
    *_of_clients("`tx.defer` handler, loop = 1", 20, lambda client: _ratio(f"ours_defer_{client}")),
    *_of_clients("batch handler, loop = 1", 24, lambda client: _ratio(f"ours_batch_{client}")),
    *_of_clients(
        "batch handler, set-based floor = 1", 0.85, lambda client: lambda results: results["of_set_floor"][f"ours_batch_{client}"][0]
    ),
)
VARIANTS: Sequence[Target] = (
    *_of_clients("1 % poison, `tx.defer`, clean = 1", 0.7, lambda client: _variant("poison", "of_clean", f"ours_defer_{client}")),
    *_of_clients("1 % poison, awaiting, clean = 1", 0.4, lambda client: _variant("poison", "of_clean", f"ours_await_{client}")),
    *_of_clients("100 % duplicates, `tx.defer`, fresh = 1", 2, lambda client: _variant("duplicates", "of_clean", f"ours_defer_{client}")),
    *_of_clients("2 ms of network, `tx.defer`, loop = 1", 100, lambda client: _variant("network", "ratios", f"ours_defer_{client}")),
)
RELAY: Sequence[Target] = (
    *_of_clients(
        "rows a second, bare loop = 1", 0.7, lambda client: lambda results: results["relay"]["throughput"]["of_bare"][f"relay_{client}"][0]
    ),
    Target("commit to acknowledgement at 20/s, direct produce = 1", 3, False, _latency("empty table", 20)),
    Target("commit to acknowledgement at 200/s, direct produce = 1", 3, False, _latency("empty table", 200)),
    Target("the same at 20/s with a million dead rows, without = 1", 2, False, _dead(20)),
    Target("the same at 200/s with a million dead rows, without = 1", 2, False, _dead(200)),
)
SCALE: Sequence[Target] = (
    Target("claim at 10 million rows, at 10 thousand = 1", 1.5, False, _claims),
    Target("bytes per inbox row, index included", 320, False, lambda results: results["scale"]["memory"]["inbox_bytes_per_row"]),
    Target("worker memory at the end of a million messages, after a fifth = 1", 1.1, False, _growth),
    Target("worker memory with 50,000 and more waiting", 200, False, lambda results: results["scale"]["memory"]["most_mib"], " MiB"),
    Target("start of `consumer-idem run` to its first poll", 1, False, lambda results: results["scale"]["start"]["first_poll_s"][0], " s"),
    Target("`import consumer_idem`, all names", 0.25, False, lambda results: results["scale"]["start"]["import_s"][0], " s"),
)
ALL: Mapping[str, Sequence[Target]] = {"Consuming": MAIN, "Worse conditions": VARIANTS, "Relay": RELAY, "Size": SCALE}

"""docs/benchmarks.md and its plots, made from docs/benchmarks.json and the notes beside this file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench import plot, targets
from tests.bench.results import FILE, load

NOTES = Path(__file__).with_name("notes.md")
PLOTS = FILE.parent / "benchmarks"

Results = Mapping[str, Any]


def write() -> None:
    """Write the page and the plots."""
    results = load()
    PLOTS.mkdir(parents=True, exist_ok=True)
    for name, text in plots(results).items():
        (PLOTS / f"{name}.svg").write_text(text)
    FILE.with_suffix(".md").write_text(page(results))


def page(results: Results) -> str:
    """Return the page."""
    parts = ["# Benchmarks", NOTES.read_text().strip(), *_measured(results), *_targets(results), *_contestants(results)]
    parts += [*_variants(results), *_relay(results), *_scale(results), *_profile(results)]
    return "\n\n".join(parts) + "\n"


def summary(section: Results) -> str:
    """Return a section as a person at a terminal wants to see it."""
    return json.dumps({name: value for name, value in section.items() if name not in ("versions", "machine")}, indent=1)


def plots(results: Results) -> dict[str, str]:
    """Return the plots that can be drawn from what is known."""
    found: dict[str, str] = {}
    if results.get("ratios"):
        found["ratios"] = plot.bars("Messages a second, the hand-written loop = 1", _bars(results))
    network = results.get("variants", {}).get("network")
    if network:
        found["network"] = plot.bars("The same with 2 ms of network to the database", _bars(network))
    grid = results.get("scale", {}).get("grid")
    if grid:
        series = {
            f"{count} process{'es' if count > 1 else ''}": [
                (row["partitions"], row["per_second"][0]) for row in grid if row["processes"] == count
            ]
            for count in sorted({row["processes"] for row in grid})
        }
        found["partitions"] = plot.lines("Partitions and processes on this machine", series, "messages a second")
    memory = results.get("scale", {}).get("memory")
    if memory:
        tenths = memory["mib_at_each_tenth"]
        points = [(memory["messages"] * place / (len(tenths) - 1), value) for place, value in enumerate(tenths)]
        found["memory"] = plot.lines("Memory of a worker over its messages", {"resident": points}, "MiB")
    return found


def _bars(section: Results) -> list[plot.Bar]:
    return [plot.Bar(name, value, *section["spread"][name], ours=name.startswith("ours")) for name, value in section["ratios"].items()]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _measured(results: Results) -> Iterator[str]:
    if "machine" in results:
        machine, versions = results["machine"], results["versions"]
        yield "## Machine and versions"
        yield (
            f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB, {machine['system']}. "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
            + f". {results['rounds']} rounds; load average when they began: {results['measured']['load_before'][0]}."
        )


def _targets(results: Results) -> Iterator[str]:
    yield "## Figures to reach"
    for title, group in targets.ALL.items():
        rows = []
        for target in group:
            value = target.found(results)
            verdict = "not measured" if value is None else "reached" if target.met(value) else "**missed**"
            rows.append([target.what, target.asked, "" if value is None else f"{value:.3g}{target.unit}", verdict])
        yield f"### {title}\n\n" + _table(["figure", "asked", "measured", ""], rows)


def _contestants(results: Results) -> Iterator[str]:
    if not results.get("ratios"):
        return
    yield "## Contestants"
    yield "![Messages a second, the hand-written loop = 1](benchmarks/ratios.svg)"
    yield _figures(results)
    absent = results.get("absent", {})
    if absent:
        yield "Absent: " + "; ".join(f"{name} ({why})" for name, why in absent.items()) + "."
    small = results.get("small_broker")
    if small:
        yield "### On the small broker"
        yield _figures(small)


def _figures(section: Results) -> str:
    rows = []
    for name, found in section["contestants"].items():
        if "per_second" not in found:
            rows.append([f"`{name}`", "wrong", "", "", "", "; ".join(found["wrong"])[:120]])
            continue
        least, most = section["spread"].get(name, ("", ""))
        per_second = f"{found['per_second']:,.0f}"
        row = [f"`{name}`", section["ratios"].get(name, ""), f"{least} to {most}", per_second, _or_blank(found["worker_microseconds"])]
        rows.append([*row, _or_blank(found["database_microseconds"])])
    head = ["contestant", "loop = 1", "spread", "messages/s", "worker µs/message", "PostgreSQL µs/message"]
    return _table(head, rows)


def _or_blank(value: float) -> str:
    return f"{value:g}" if value else ""


def _variants(results: Results) -> Iterator[str]:
    variants = results.get("variants", {})
    titles = {
        "poison": "1 % poison: the handler raises",
        "duplicates": "100 % duplicates: every key is settled already",
        "network": "2 ms of network to the database, per round trip",
        "uvloop": "Event loops",
    }
    for name, title in titles.items():
        if name not in variants:
            continue
        section = variants[name]
        yield f"## {title}"
        if name == "network":
            yield "![The same with 2 ms of network to the database](benchmarks/network.svg)"
        if section.get("of_clean"):
            rows = [[f"`{contestant}`", value, f"{least} to {most}"] for contestant, (value, least, most) in section["of_clean"].items()]
            yield _table(["contestant", "its clean run = 1", "spread"], rows)
        yield _figures(section)


def _relay(results: Results) -> Iterator[str]:
    relay = results.get("relay")
    if not relay:
        return
    yield "## Relay"
    rows = [
        [f"`{name}`", f"{found['per_second']:,.0f}", found["worker_microseconds"]]
        for name, found in relay["throughput"]["contestants"].items()
    ]
    yield _table(["program", "rows/s", "µs of its own per row"], rows)
    latencies = []
    for table, found in relay["latency_ms"].items():
        for row in found:
            ours, direct = row["relay"], row["direct"]
            latencies.append([table, row["rate"], ours["median"], ours["p95"], ours["p99"], direct["median"], direct["p95"], row["times"]])
    head = ["outbox", "records/s", "commit to acknowledgement, median ms", "95 %", "99 %", "direct produce, median ms", "95 %", "times"]
    yield _table(head, latencies)


def _scale(results: Results) -> Iterator[str]:
    scale = results.get("scale")
    if not scale:
        return
    yield "## Size"
    yield "![Partitions and processes on this machine](benchmarks/partitions.svg)"
    yield _table(
        ["partitions", "processes", "messages/s", "spread"],
        [
            [row["partitions"], row["processes"], row["per_second"][0], f"{row['per_second'][1]} to {row['per_second'][2]}"]
            for row in scale["grid"]
        ],
    )
    memory, start, claims = scale["memory"], scale["start"], scale["claims"]
    yield "![Memory of a worker over its messages](benchmarks/memory.svg)"
    yield (
        f"A worker takes {memory['most_mib']} MiB at most over {memory['messages']:,} messages that all wait when it starts. "
        f"A row of the inbox takes {memory['inbox_bytes_per_row']} bytes, index included. "
        f"`consumer-idem run` polls {start['first_poll_s'][0]} s after its start, its way into the group included; "
        f"`import consumer_idem` with all its names takes {1e3 * start['import_s'][0]:.0f} ms."
    )
    head = ["inbox rows", "µs per claim", "PostgreSQL µs per claim", "right after a checkpoint, µs per claim", "bytes per row"]
    rows = []
    for count in claims["rows"]:
        found = claims[str(count)]
        first = found["after_checkpoint"]["microseconds"]
        rows.append([f"{count:,}", found["microseconds"], found["database_microseconds"], first, found["bytes_per_row"]])
    yield _table(head, rows)


def _profile(results: Results) -> Iterator[str]:
    profile = results.get("profile")
    if not profile:
        return
    names = [name for name, found in profile.items() if isinstance(found, Mapping) and "worker" in found]
    stages = sorted(
        {stage for name in names for stage in profile[name]["worker"]}, key=lambda stage: -profile[names[0]]["worker"].get(stage, 0)
    )
    yield "## Where the time goes"
    yield "Processor time of the worker per message, in µs, sampled by py-spy: the innermost frame of ours decides, so that the driver counts as who called it."
    rows = [[stage, *(profile[name]["worker"].get(stage, "") for name in names)] for stage in stages]
    yield _table(["", *(f"`{name}`" for name in names)], [*rows, ["all", *(profile[name]["worker_microseconds"] for name in names)]])
    for name in names[:1]:
        yield f"The same of PostgreSQL for `{name}`, from pg_stat_statements (waiting included):"
        statements = [row for row in profile[name]["statements"] if row["microseconds_per_message"] >= 0.05]
        yield _table(
            ["statement", "calls", "µs/message"],
            [[f"`{row['statement']}`", row["calls"], row["microseconds_per_message"]] for row in statements],
        )

"""docs/benchmarks.md and its picture, made from docs/benchmarks.json and from nothing else."""

from collections.abc import Mapping
from html import escape
from typing import Any

from tests.bench import results

_DOCS = results.FILE.parent
_TARGETS = {"ours_await_aiokafka": 6, "ours_defer_aiokafka": 20, "ours_batch_aiokafka": 24}
_ROW, _LEFT, _WIDTH = 26, 190, 760
_ABOUT = {
    "loop": "one transaction per message, offsets committed once a second",
    "loop_commit_each": "the same, with an offset commit per message",
    "pool": "the same with 16 tasks over a pool",
    "set_floor": "the best hand-written set-based batch, with the same validation and fingerprint",
    "pgbench_pipelined": "the same statements from pgbench, 250 a commit, pipelined, without Kafka",
    "dbos": "DBOS's Kafka consumer",
    "faststream": "FastStream with a hand-written inbox",
    "faststream_8_workers": "the same with 8 workers",
    "ours_await": "ours, a handler that awaits its two statements",
    "ours_defer": "ours, a handler that defers them",
    "ours_batch": "ours, a batch handler",
}


def write() -> None:
    """Write the page and the picture."""
    known = results.load()
    ratios = known.get("ratios", {})
    if ratios:
        (_DOCS / "benchmarks.svg").write_text(_picture(ratios))
    (_DOCS / "benchmarks.md").write_text("\n".join(_page(known)) + "\n")


def _page(known: Mapping[str, Any]) -> list[str]:
    machine = known.get("machine", {})
    versions = ", ".join(f"{name} {version}" for name, version in known.get("versions", {}).items())
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench`. A figure is a ratio within one round, the hand-written loop being 1: medians of "
        f"{known.get('rounds', 0)} rounds with the least and the most. The work: 300-byte JSON from 8 partitions, one message in ten a "
        "duplicate, one insert, one balance update and one outbox record for each; measured from the first poll until all effects and "
        "offsets are committed. A contestant whose result is wrong has no figure.",
        "",
        f"Machine: {machine.get('processor')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB, {machine.get('system')}, "
        f"PostgreSQL and Kafka on the same machine; load averages before the run: {known.get('load_before')}. Versions: {versions}.",
        "",
        "![Times as fast as the hand-written loop.](benchmarks.svg)",
        "",
        *_table(known.get("ratios", {}), known.get("contestants", {})),
    ]
    for name, variant in known.get("variants", {}).items():
        rounds = known.get("variants_rounds", 0)
        lines += ["", f"## {name} ({rounds} rounds)", "", *_table(variant["ratios"], variant["contestants"])]
    return lines


def _table(ratios: Mapping[str, Any], contestants: Mapping[str, Any]) -> list[str]:
    lines = ["| contestant | times the loop | spread | messages/s | worker µs | database µs | MiB | |", "|---|---|---|---|---|---|---|---|"]
    for name, told in contestants.items():
        figure = ratios.get(name)
        about = _ABOUT.get(name.removesuffix("_aiokafka").removesuffix("_confluent"), "")
        if figure is None or "per_second" not in told:
            lines.append(f"| {name} | no figure | | | | | | {about}: {'; '.join(told.get('wrong', []))[:200]} |")
            continue
        spread = f"{figure['least']:.2f} to {figure['most']:.2f}"
        costs = (
            f"{told['per_second']:.0f} | {told['worker_microseconds']:.0f} | {told['database_microseconds']:.0f} | {told['memory_mib']:.0f}"
        )
        lines.append(f"| {name} | {figure['median']:.2f} | {spread} | {costs} | {about} |")
    return lines


def _picture(ratios: Mapping[str, Any]) -> str:
    most = max([*(figure["median"] for figure in ratios.values()), *_TARGETS.values()])
    scale = (_WIDTH - _LEFT - 70) / most
    rows = [_bar(place, name, figure, scale) for place, (name, figure) in enumerate(ratios.items())]
    height = _ROW * len(ratios) + 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
        '<text x="8" y="18" font-weight="bold">Times as fast as the hand-written loop (line: the figure aimed at)</text>'
        f"{''.join(rows)}</svg>\n"
    )


def _bar(place: int, name: str, figure: Mapping[str, float], scale: float) -> str:
    top = 30 + place * _ROW
    width = max(1.0, figure["median"] * scale)
    colour = "#2b6cb0" if name.startswith("ours") else "#a0aec0"
    target = _TARGETS.get(name)
    line = "" if target is None else f'<path d="M{_LEFT + target * scale:.1f} {top} v{_ROW - 4}" stroke="#c53030" stroke-width="2"/>'
    return (
        f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{_LEFT}" y="{top + 2}" width="{width:.1f}" height="{_ROW - 8}" fill="{colour}"/>{line}'
        f'<text x="{_LEFT + width + 6:.1f}" y="{top + 15}">{figure["median"]:.1f}</text>'
    )

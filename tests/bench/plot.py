"""Plots as SVG, written directly: bars on a logarithmic scale, and lines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, BAR, GAP = 760, 230, 90, 20, 8
INK, OURS, OTHERS, SPREAD, GRID = "#333333", "#2a6f97", "#a9b4bd", "#111111", "#dddddd"
COLOURS = ("#2a6f97", "#c8553d", "#588157")


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure with its spread; `ours` stands out."""

    name: str
    value: float
    least: float
    most: float
    ours: bool = False


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Return horizontal bars, the longest last, on a logarithmic scale."""
    least, most = min(row.least for row in rows), max(row.most for row in rows)
    low, high = math.floor(math.log10(max(least, 1e-3))), math.ceil(math.log10(most))

    def x(value: float) -> float:
        return LEFT + (math.log10(max(value, 10**low)) - low) / max(1, high - low) * (WIDTH - LEFT - RIGHT)

    height = 56 + len(rows) * (BAR + GAP) + 24
    parts = [_line(x(10**power), 44, x(10**power), height - 28) for power in range(low, high + 1)]
    parts += [_text(x(10**power), height - 12, f"{10.0**power:g}", anchor="middle") for power in range(low, high + 1)]
    for place, row in enumerate(sorted(rows, key=lambda row: row.value)):
        top = 52 + place * (BAR + GAP)
        middle = top + BAR / 2
        parts.append(_text(LEFT - 8, middle + 4, row.name, anchor="end"))
        parts.append(f'<rect x="{LEFT}" y="{top}" width="{x(row.value) - LEFT:.1f}" height="{BAR}" fill="{OURS if row.ours else OTHERS}"/>')
        parts.append(_line(x(row.least), middle, x(row.most), middle, colour=SPREAD))
        parts.append(_text(x(row.most) + 6, middle + 4, f"{row.value:.3g}"))
    return _document(title, height, parts)


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    """Return one line per name over a common scale that begins at zero."""
    height, top, bottom = 360, 56, 310
    xs = sorted({x for points in series.values() for x, _ in points})
    most = max(y for points in series.values() for _, y in points) * 1.1

    def place(point: tuple[float, float]) -> tuple[float, float]:
        share = (point[0] - xs[0]) / (xs[-1] - xs[0])
        return 80 + share * (WIDTH - 80 - 150), bottom - point[1] / most * (bottom - top)

    parts = [_line(80, bottom, WIDTH - 150, bottom), _text(80, top - 8, unit)]
    parts += [_text(place((x, 0))[0], bottom + 18, f"{x:g}", anchor="middle") for x in xs]
    for step in range(1, 5):
        level = place((xs[0], most * step / 5))[1]
        parts += [_line(80, level, WIDTH - 150, level), _text(74, level + 4, f"{most * step / 5:,.3g}", anchor="end")]
    for (name, points), colour in zip(series.items(), COLOURS, strict=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        end = place(points[-1])
        parts.append(_text(end[0] + 8, end[1] + 4, name, colour=colour))
    return _document(title, height, parts)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = INK, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(text)}</text>'


def _document(title: str, height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" role="img">'
    ground = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, _text(16, 28, title, size=16), *parts, "</svg>", ""])

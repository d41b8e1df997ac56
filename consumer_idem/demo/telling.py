"""What the demo prints: progress while it runs, and a table that says whether the promise was kept."""

import json
import sys
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from consumer_idem.demo.report import Report


class Teller:
    """Tells on standard error how far it is: a bar on a terminal, else lines. A context manager, or call close()."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._total = 0
        self._tenth = 0
        columns = (TextColumn("payments settled"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._bar = self._progress.add_task("", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def expect(self, total: int) -> None:
        """Say how many payments there are."""
        self._total = total
        self._progress.update(self._bar, total=total)

    def say(self, line: str) -> None:
        """Tell what was done."""
        self._console.print(line, markup=False)

    def advance(self, settled: int) -> None:
        """Tell how many payments are settled."""
        self._progress.update(self._bar, completed=settled)
        tenth = 10 * settled // self._total
        if tenth > self._tenth and not self._console.is_terminal:
            self.say(f"{settled} of {self._total} payments settled")
        self._tenth = max(tenth, self._tenth)


def print_json(report: Report) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(report.numbers()))


def print_table(report: Report) -> None:
    """Print a table on standard output, then what is wrong, if anything is."""
    console = Console(file=sys.stdout, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, title="What was sent, and what came of it", title_justify="left")
    table.add_column("")
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    table.add_column("")
    for line in report.lines():
        table.add_row(line.what, _number(line.expected), _number(line.found), _mark(line.expected, line.found))
    console.print(table)
    for problem in report.verdict.problems:
        console.print(problem, style="red", markup=False)
    console.print(report.sentence, style="green" if report.kept else "bold red", markup=False)


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}"


def _mark(expected: Any, found: Any) -> str:
    if expected is None or found is None:
        return ""
    return "[green]ok[/]" if expected == found else "[bold red]WRONG[/]"

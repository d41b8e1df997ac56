"""The result of the demo in numbers. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from consumer_idem.demo.check import Found, Verdict
from consumer_idem.demo.workload import Workload


class Line(NamedTuple):
    """One line of the table. None: nothing to say."""

    what: str
    expected: int | Decimal | None
    found: int | Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was sent, what was found, and the verdict."""

    workload: Workload
    found: Found
    verdict: Verdict
    killed_workers: int
    seconds: float

    @property
    def kept(self) -> bool:
        """Whether every message had its one effect, and there is nothing else."""
        return not (self.verdict.lost or self.verdict.doubled or self.verdict.wrong)

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if self.kept:
            return f"Each payment took effect once, although a worker was killed half-way. ({self.seconds:.1f} s)"
        return f"The promise was broken: {self.verdict.lost} lost, {self.verdict.doubled} doubled, {self.verdict.wrong} wrong."

    def numbers(self) -> dict[str, Any]:
        """Return the numbers by name. What was found is counted in the shop's tables, the quarantine and the output topic."""
        reasons = Counter(entry.reason for entry in self.found.quarantine)
        return {
            "produced": len(self.workload.requests),
            "distinct": len(self.workload.payments),
            "applied": len({effect.id for effect in self.found.effects}),
            "rejected": len(set(self.found.refusals)),
            "duplicates": self.workload.duplicates,
            "conflicts": reasons["conflict"],
            "undecodable": reasons["undecodable"],
            "quarantined": len(self.found.quarantine),
            "published": len({record.payment_id for record in self.found.records}),
            "killed_workers": self.killed_workers,
            "lost": self.verdict.lost,
            "doubled": self.verdict.doubled,
            "wrong": self.verdict.wrong,
            "problems": self.verdict.problems,
            "seconds": round(self.seconds, 1),
        }

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the table."""
        workload, found, numbers = self.workload, self.found, self.numbers()
        yield Line("messages sent", None, numbers["produced"])
        yield Line("exact duplicates among them", None, workload.duplicates)
        yield Line("payments applied", len(workload.applied), len(found.effects))
        yield Line("payments refused, no funds", len(workload.refused), len(found.refusals))
        yield Line("same id, other amount: quarantined", len(workload.conflicts), numbers["conflicts"])
        yield Line("garbage: quarantined", len(workload.garbage), numbers["undecodable"])
        yield Line("records published", len(workload.applied), len(found.records))
        yield Line("money left on the accounts", sum(workload.balances_after().values()), sum(found.balances.values()))
        yield Line("workers killed half-way", None, self.killed_workers)
        yield Line("lost", 0, self.verdict.lost)
        yield Line("doubled", 0, self.verdict.doubled)

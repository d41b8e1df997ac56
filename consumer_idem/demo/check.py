"""Whether all came of the messages that had to, and nothing else. Pure: what was sent against what was found afterwards."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from consumer_idem.demo.workload import Workload


class Effect(NamedTuple):
    """A row of the shop's payment table."""

    id: str
    account: str
    amount: Decimal


class Entry(NamedTuple):
    """An entry in quarantine."""

    reason: str
    message_id: str | None
    fields: tuple[str, ...]
    value: bytes | None

    def __str__(self) -> str:
        return f"{self.reason} {self.message_id or self.value!r}"


class Record(NamedTuple):
    """A record on the output topic; one that came twice under the same id is one."""

    id: str
    payment_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is there after the run."""

    effects: Sequence[Effect]
    refusals: Sequence[str]
    balances: Mapping[str, Decimal]
    quarantine: Sequence[Entry]
    records: frozenset[Record]


@dataclass(slots=True)
class Verdict:
    """What is wrong, in numbers and in words. All zero: each message had its one effect."""

    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    problems: list[str] = field(default_factory=list)

    def lose(self, what: str, things: Iterable[object]) -> None:
        """Note things that should be there."""
        self.lost += self._note(f"lost: {what}", things)

    def double(self, what: str, things: Iterable[object]) -> None:
        """Note things that are there too often."""
        self.doubled += self._note(f"doubled: {what}", things)

    def blame(self, what: str, things: Iterable[object]) -> None:
        """Note things that should not be there at all, or otherwise."""
        self.wrong += self._note(f"wrong: {what}", things)

    def _note(self, what: str, things: Iterable[object]) -> int:
        named = sorted(map(str, things))
        if named:
            more = f" and {len(named) - 5} more" if len(named) > 5 else ""
            self.problems.append(f"{what}: {', '.join(named[:5])}{more}")
        return len(named)


def judge(workload: Workload, found: Found) -> Verdict:
    """Compare."""
    verdict = Verdict()
    _effects(verdict, workload, found)
    _quarantine(verdict, workload, found)
    _records(verdict, workload, found)
    return verdict


def _effects(verdict: Verdict, workload: Workload, found: Found) -> None:
    applied = Counter(effect.id for effect in found.effects)
    refused = Counter(found.refusals)
    verdict.lose("payments that were not applied", workload.applied.keys() - applied.keys())
    verdict.lose("refusals", workload.refused - refused.keys())
    verdict.double("payments that were applied again", (applied - Counter(applied.keys())).elements())
    verdict.double("payments that were refused again", (refused - Counter(refused.keys())).elements())
    verdict.blame("payments that nobody could pay were applied", applied.keys() - workload.applied.keys())
    verdict.blame("payments were refused", refused.keys() - workload.refused)
    expected = {Effect(payment.id, payment.account, payment.amount) for payment in workload.applied.values()}
    verdict.blame(
        "other account or amount", [effect.id for effect in found.effects if effect.id in workload.applied and effect not in expected]
    )
    after = workload.balances_after()
    verdict.blame(
        "balances", [account for account in after.keys() | found.balances.keys() if after.get(account) != found.balances.get(account)]
    )


def _quarantine(verdict: Verdict, workload: Workload, found: Found) -> None:
    expected = Counter(Entry("conflict", id, ("amount",), value) for id, value in workload.conflicts.items())
    expected += Counter(Entry("undecodable", None, (), value) for value in workload.garbage)
    entries = Counter(found.quarantine)
    verdict.lose("messages that are not in quarantine with their reason", (expected - entries).elements())
    again = Counter({entry: count - 1 for entry, count in entries.items() if entry in expected})
    verdict.double("entries in quarantine", (+again).elements())
    verdict.blame("entries in quarantine", (entry for entry in entries.elements() if entry not in expected))


def _records(verdict: Verdict, workload: Workload, found: Found) -> None:
    ids: dict[str, list[str]] = defaultdict(list)
    for record in found.records:
        ids[record.payment_id].append(record.id)
    applied = {effect.id for effect in found.effects}
    verdict.lose("applied payments that were not published", (applied | workload.applied.keys()) - ids.keys())
    verdict.double("payments that were published as two", [id for id, copies in ids.items() for _ in copies[1:]])
    verdict.blame("published without an applied payment", ids.keys() - applied)

"""How the outbox is, for people and alarms: what is parked, which topics are held, what keeps the table from being cleaned."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from consumer_idem.errors import CommitUnknown, DatabaseFailure
from consumer_idem.ports import Database
from consumer_idem.sql import Queries, command
from consumer_idem.transaction.short import short

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """Above these the health report has an alarm."""

    transaction_age: timedelta = timedelta(minutes=5)
    transactions: int = 10_000_000
    """So many transactions old may be what keeps dead rows from being removed, where its age in time is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The oldest thing that keeps dead rows from being removed: a transaction, a prepared one or a replication slot."""

    kind: str
    name: str
    transactions: int
    """How many transactions have begun since."""
    age: timedelta | None
    """None for a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxReport:
    """One look at the outbox. `alarms` are what a person should do something about."""

    parked: int
    held_topics: Sequence[str]
    relays: int
    dead_rows: int
    holder: Holder | None
    alarms: Sequence[str]


class OutboxHealth:
    """Looks at the outbox; `run_once` is for a Loop and logs what is alarming, where `tells` says that this process is to."""

    def __init__(
        self, database: Database, *, schema: str = "idem", limits: HealthLimits | None = None, tells: Callable[[], bool] = lambda: True
    ) -> None:
        self._database = database
        self._schema = schema
        self._sql = Queries("outbox", schema)
        self._limits = limits or HealthLimits()
        self._tells = tells

    async def run_once(self) -> int:
        """Log every alarm; return 0. A database that does not answer is left to the relay, which says so."""
        try:
            report = await self.look()
        except (DatabaseFailure, CommitUnknown):
            return 0
        # Without a relay nobody else would.
        for alarm in report.alarms if self._tells() or not report.relays else ():
            log.warning("outbox alarm", extra={"alarm": alarm})
        return 0

    async def look(self) -> OutboxReport:
        """Return how the outbox is now."""
        async with short(self._database, self._schema, script=self._sql["begin_read"]) as connection:
            (row,) = await connection.fetch(self._sql["health"])
        age = None if row["seconds"] is None else timedelta(seconds=row["seconds"])
        holder = row["kind"] and Holder(kind=row["kind"], name=row["name"], transactions=row["transactions"] or 0, age=age)
        parked_since = None if row["parked_since"] is None else timedelta(seconds=row["parked_since"])
        alarms = [*self._records(row["parked"], parked_since, row["held"]), *self._relays(row["relays"]), *self._cleaning(holder)]
        return OutboxReport(
            parked=row["parked"],
            held_topics=row["held"],
            relays=row["relays"],
            dead_rows=row["dead_rows"] or 0,
            holder=holder or None,
            alarms=alarms,
        )

    def _cleaning(self, holder: Holder | None) -> Iterator[str]:
        if holder is None:
            return
        if holder.transactions > self._limits.transactions or (holder.age is not None and holder.age > self._limits.transaction_age):
            age = f", {holder.age.total_seconds():.0f} s old" if holder.age is not None else ""
            yield f"The {holder.kind} {holder.name}{age}, keeps dead rows from being removed: the outbox grows. End it."

    def _records(self, parked: int, since: timedelta | None, held: Sequence[str]) -> Iterator[str]:
        if parked and since is not None:
            see = command("outbox list", self._schema)
            yield f"{parked} records are parked, the oldest is {since.total_seconds():.0f} s old: see {see}."
        for topic in held:
            yield f"The topic {topic} takes no records: they wait until it does."

    def _relays(self, relays: int) -> Iterator[str]:
        if not relays:
            yield f"No relay runs: nothing is published. Start {command('relay', self._schema)}."

"""Releasing what is in quarantine: the handler runs in one transaction that settles the entry too.

It is a batch of one message whose seal moves a quarantine entry instead of a lane's progress. What comes to nothing is
rolled back, and noted at the entry by a transaction of its own.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from consumer_idem import telemetry
from consumer_idem.consumer.batch import Batch, Tables
from consumer_idem.consumer.case import Case
from consumer_idem.consumer.handler import Route, Routes
from consumer_idem.consumer.reread import Order, Refused, Reread, reread
from consumer_idem.consumer.result import Blamed, Broken, InDoubt, Result, SealRefused, Settled, Unavailable
from consumer_idem.errors import CommitUnknown, DatabaseFailure
from consumer_idem.inbox.progress import Slot
from consumer_idem.inbox.table import Inbox
from consumer_idem.message import Message
from consumer_idem.outcome import Applied, Outcome, Quarantined, Reason, Rejected, Retry, Skipped
from consumer_idem.ports import Connection, Database, Row
from consumer_idem.quarantine.table import Act, Due, Identity, Quarantine
from consumer_idem.transaction.short import short

log = logging.getLogger(__name__)

_TRIES = 8
"""So often an unavailable database, or an entry that somebody else is deciding about, is tried; some ten seconds in all."""
_STATES = {Applied: "released", Rejected: "released", Skipped: "closed"}


@dataclass(frozen=True, slots=True)
class Released:
    """The message was handled, or its key was found settled. Quarantined and Retry mean: the entry is still open."""

    id: int
    outcome: Outcome
    new_id: str | None = None


@dataclass(frozen=True, slots=True)
class AlreadySettled:
    """A duplicate: the entry had been released, discarded or closed before, and nothing was run."""

    id: int
    state: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class NotNow:
    """The database did not answer, or somebody else is deciding about this entry: ask again, which is safe."""

    id: int
    error: str


Answer = Released | AlreadySettled | Refused | NotNow


@dataclass(slots=True)
class EntrySeal:
    """A release's: takes the entry, gives up the claim that it holds, and in the end settles the entry. `kept`: what failed."""

    quarantine: Quarantine
    inbox: Inbox
    entry: Row
    again: Reread
    order: Order
    kept: Case | None = None
    fence: tuple[int, UUID] | None = None
    passed: int = 0

    def topic(self, name: str) -> int:
        """Return the topic's incarnation that the message came from."""
        return int(self.entry["topic_id"])

    def slot(self, message: Message) -> Slot:
        """Return the slot that the message came from."""
        return Slot(self.entry["consumer_group"], self.entry["topic_id"], message.partition)

    async def begin(self, connection: Connection) -> bool:
        """Take the entry, and give up the claim of its message, which is claimed anew; False if the entry is not open any more."""
        if not await self.quarantine.take(connection, [self.entry["id"]]):
            return False
        if self.again.key_hash is not None:
            position = (self.entry["topic_id"], self.entry["partition"], self.entry["offset"])
            await self.inbox.free(connection, self.again.key_hash, position)
        return True

    async def seal(self, connection: Connection, attempt: UUID, settled: Sequence[Case]) -> bool:
        """Settle the entry; False if the message is to stay in quarantine, or the transaction is lost."""
        (case,) = settled
        if isinstance(case.outcome, Quarantined):
            self.kept = case
            return False
        assert case.outcome is not None
        state = _STATES[type(case.outcome)]
        return await self.quarantine.settle(connection, self.entry["id"], state, self.act(case.outcome, case=case), attempt)

    def advance(self, settled: Sequence[Message]) -> None:
        """There is no watermark to move."""

    async def explain(self, database: Database) -> None:
        """Return: whether the entry is still open is asked by whoever notes the failure."""

    def act(self, outcome: Outcome, error: str = "", case: Case | None = None) -> Act:
        """Return what the audit trail says about this release."""
        identity = Identity()
        if case is not None and case.identified:
            identity = Identity(case.reading.key_hash, case.reading.tenant, case.reading.message_id)
        return Act(
            operator=self.order.operator,
            note=self.order.note,
            outcome=type(outcome).__name__.lower(),
            error=error,
            new_id=self.again.new_id,
            edited=self.order.edited,
            identity=identity,
        )


class Releaser:
    """Releases entries of one group, through the handlers of its App. `on_records` hears of commits that have left records."""

    def __init__(self, tables: Tables, routes: Routes, group: str, *, on_records: Callable[[], None] = lambda: None) -> None:
        self._tables = tables
        self._on_records = on_records
        self._routes = routes
        self._group = group

    async def run_once(self) -> int:
        """Release the entry that is most overdue; return 0 if none is. The transaction that finds it has put it off already."""
        async with self._short() as connection:
            id = await self._tables.quarantine.due(connection, self._group, [_due(route) for route in self._routes.all])
        if id is None:
            return 0
        answer = await self.release(id, Order(operator="worker", note="release time"))
        log.info("entry was due", extra={"entry": id, "answer": str(answer)})
        return 1

    async def release(self, id: int, order: Order) -> Answer:
        """Run the handler now for the message of an open entry, at most once however often and by whomever this is asked."""
        entry, error = None, ""
        for tried in range(_TRIES):
            try:
                entry = await self._read(id)
                answer = await self._try(id, entry, order)
            except (DatabaseFailure, CommitUnknown) as failure:
                answer = NotNow(id, str(failure))
            if not isinstance(answer, NotNow):
                return answer
            error = answer.error
            await asyncio.sleep(random.uniform(0, min(2.0, 0.05 * 2**tried)))
        return NotNow(id, error)

    async def _try(self, id: int, entry: Row | None, order: Order) -> Answer:
        if entry is None:
            return Refused(id, "There is no such entry.")
        if entry["state"] != "open":
            return AlreadySettled(id, entry["state"], entry["settled_at"])
        again = reread(entry, order, self._routes, self._group)
        if isinstance(again, Refused):
            return again
        seal = EntrySeal(self._tables.quarantine, self._tables.inbox, entry, again, order)
        return await self._answer(seal, await self._decided(id, await self._run(seal, again)))

    async def _run(self, seal: EntrySeal, again: Reread) -> Result:
        batch = Batch(tables=self._tables, routes=again.routes, seal=seal, group=self._group, messages=[again.message], lone=True)
        with telemetry.transaction([again.message]) as measured:
            result = await batch.run()
            measured.ended(type(result).__name__.lower(), result.outcomes if isinstance(result, Settled) else ())
        if batch.records and isinstance(result, Settled):
            self._on_records()
        return result

    async def _decided(self, id: int, result: Result) -> Result:
        """Find out whether an unknown commit happened: its audit row says so, once the lock on the entry is free."""
        if not isinstance(result, InDoubt):
            return result
        for tried in range(_TRIES):
            try:
                async with self._short() as connection:
                    committed = await self._tables.quarantine.committed(connection, id, result.attempt)
            except (DatabaseFailure, CommitUnknown) as error:
                log.warning("commit of a release is unknown, asking again", extra={"entry": id, "error": str(error)})
                await asyncio.sleep(random.uniform(0, min(2.0, 0.05 * 2**tried)))
                continue
            await (result.synchronizer.after_commit() if committed else result.synchronizer.after_rollback())
            return Settled(list(result.outcomes.values())) if committed else Unavailable("The commit was lost.")
        return Unavailable("The commit is unknown and the database does not answer.")

    async def _answer(self, seal: EntrySeal, result: Result) -> Answer:
        """Return what came of the transaction; note at the entry what came to nothing."""
        id = seal.entry["id"]
        match result:
            case Unavailable(error):
                return NotNow(id, error)
            case Settled([Retry() as retry]) | Blamed(retry=Retry() as retry):
                return await self._keep(seal, retry, f"The handler asked for a retry after {retry.after}.", failures=0)
            case Settled([outcome]):
                return Released(id, outcome, seal.again.new_id)
            case SealRefused() if seal.kept is not None and isinstance(seal.kept.outcome, Quarantined):
                return await self._keep(seal, seal.kept.outcome, seal.kept.outcome.error, failures=seal.kept.failures)
            case Blamed(error=error) | Broken(error):
                return await self._keep(seal, Quarantined(Reason.ATTEMPTS_USED_UP, error), error, failures=1)
            case _:
                # If the entry is not open any more, which is the other reason, nothing is noted.
                error = "The transaction was ended inside the handler."
                return await self._keep(seal, Quarantined(Reason.ATTEMPTS_USED_UP, error), error, failures=1)

    async def _keep(self, seal: EntrySeal, outcome: Quarantined | Retry, error: str, *, failures: int) -> Answer:
        conflict = outcome.fields if isinstance(outcome, Quarantined) and outcome.reason == Reason.CONFLICT else None
        act = seal.act(outcome, error, None if conflict is None else seal.kept)
        async with self._short() as connection:
            kept = await self._tables.quarantine.keep(connection, seal.entry["id"], act, failures=failures, conflict=conflict)
        return Released(seal.entry["id"], outcome, seal.again.new_id) if kept else NotNow(seal.entry["id"], "It was settled meanwhile.")

    async def _read(self, id: int) -> Row | None:
        async with self._short() as connection:
            return await self._tables.quarantine.read(connection, id)

    def _short(self) -> AbstractAsyncContextManager[Connection]:
        return short(self._tables.database, self._tables.schema)


def _due(route: Route) -> Due:
    policy = route.handler.policy
    return Due(route.scope, policy.release_after, policy.max_release_after, policy.releases)

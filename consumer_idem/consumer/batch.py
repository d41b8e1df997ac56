"""One transaction over some messages, start to end: claim, call the handlers, settle, seal, commit.

This is the one place where inbox, outbox and quarantine meet. It returns what happened and decides nothing about a next try.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import assert_never
from uuid import UUID, uuid4

from consumer_idem import failpoint
from consumer_idem.consumer.calling import Caller, Culprit, CulpritUnknown, InfrastructureFailed, describe
from consumer_idem.consumer.case import Case, firsts_of
from consumer_idem.consumer.evidence import claims_of, content_of, copies_of, entry_of
from consumer_idem.consumer.handler import Routes
from consumer_idem.consumer.result import Blamed, Broken, InDoubt, Result, SealRefused, Settled, Unavailable
from consumer_idem.consumer.seal import Seal
from consumer_idem.errors import CommitUnknown, DatabaseFailure, TransactionLost
from consumer_idem.inbox.attempts import Attempts
from consumer_idem.inbox.table import Inbox, KeysVanish
from consumer_idem.inbox.verdict import Conflict, Duplicate, Fresh, Held, Unverified, compare
from consumer_idem.message import Message, Position
from consumer_idem.outbox.limits import RecordLimits
from consumer_idem.outbox.table import Outbox
from consumer_idem.outcome import Applied, Outcome, Quarantined, Reason, Rejected, Retry, Skipped
from consumer_idem.ports import Connection, Database, Fault
from consumer_idem.quarantine.table import Quarantine
from consumer_idem.transaction.begin import Begin
from consumer_idem.transaction.unit import Unit


@dataclass(frozen=True, slots=True)
class Tables:
    """What a transaction writes to, and how it begins."""

    database: Database
    begin: Begin
    inbox: Inbox
    attempts: Attempts
    quarantine: Quarantine
    outbox: Outbox
    schema: str
    limits: RecordLimits


@dataclass(slots=True)
class Batch:
    """One transaction. Make a new one for each try.

    `failures`: attempts of the one message that failed before and are not in the database.
    `condemned`: do not call the handler of the one message, if it has any: quarantine it with this. `doubts`: earlier transactions whose
    commit is unknown; what this one learns about them is in `proven` and `disproved`. `expect_repeats`: look for duplicates before
    anything is claimed; `repeats` says how many there were.
    """

    tables: Tables
    routes: Routes
    seal: Seal
    group: str
    messages: Sequence[Message]
    lone: bool = False
    retries: int = 0
    failures: int = 0
    condemned: Quarantined | None = None
    doubts: Sequence[InDoubt] = ()
    expect_repeats: bool = False
    attempt: UUID = field(default_factory=uuid4)
    proven: list[InDoubt] = field(default_factory=list)
    disproved: list[InDoubt] = field(default_factory=list)
    records: int = 0
    repeats: int = 0

    async def run(self) -> Result:
        """Run the transaction; return what came of it. The database is touched by nothing but this transaction."""
        cases = [Case(message, self.seal.topic(message.topic), self.routes.find(message)) for message in self.messages]
        if self.lone:
            cases[0].failures = self.failures
        try:
            connection = await self.tables.begin.attempt(self.tables.database, self.attempt)
        except DatabaseFailure as error:
            return Unavailable(describe(error))
        caller = Caller(Unit(connection, self.attempt, self.tables.schema, self.tables.limits), self.lone, self.retries)
        try:
            result = await self._until_sealed(connection, caller, cases)
        except BaseException as error:
            await connection.rollback()
            if not isinstance(error, Exception):
                raise
            result = self._failed(error, connection, cases)
        else:
            if result is None:
                return await self._commit(connection, caller, cases)
            await connection.rollback()
        await caller.dropped.after_rollback()
        await caller.synchronizer.after_rollback()
        return result

    async def _until_sealed(self, connection: Connection, caller: Caller, cases: list[Case]) -> Result | None:
        """Do everything up to the seal; None if the transaction may be committed."""
        await failpoint.reached("begin.after")
        if not await self.seal.begin(connection):
            return SealRefused()
        await self._claim(connection, cases)
        await failpoint.reached("claim.after")
        await self._handle(caller, cases)
        await failpoint.reached("handlers.after")
        settled = [case for case in cases if case.outcome is not None and not isinstance(case.outcome, Retry)]
        if not settled:
            return Settled([case.outcome for case in cases if case.outcome is not None])
        await self._settle(connection, caller, cases, settled)
        await failpoint.reached("settle.after")
        if not await self.seal.seal(connection, self.attempt, settled):
            return SealRefused()
        await failpoint.reached("seal.after")
        return None

    async def _claim(self, connection: Connection, cases: list[Case]) -> None:
        """Claim the key of every identified message; give each its verdict, as far as it does not hang on a neighbour."""
        identified = [case for case in cases if case.identified]
        firsts = firsts_of(identified)
        wanted = list(firsts.values())
        # What is in doubt is decided by claims alone.
        if wanted and self.expect_repeats and not self.doubts:
            wanted = await self._without_repeats(connection, wanted)
        held = await self.tables.inbox.claim(connection, self.attempt, claims_of(wanted)) if wanted else {}
        self._learn(held, firsts)
        for key, holder in held.items():
            firsts[key].held = holder
        _give_verdicts(identified)
        self.repeats = sum(type(case.verdict) is Duplicate for case in identified)
        if self.proven:
            self._keep_outcomes(cases)

    async def _without_repeats(self, connection: Connection, cases: list[Case]) -> list[Case]:
        """Give the duplicates among messages of different keys their verdict; return the others."""
        repeated = await self.tables.inbox.repeated(connection, content_of(cases), self.seal.passed)
        for place in repeated.redelivered:
            cases[place].verdict = _DUPLICATE
        for place in repeated.copies:
            cases[place].verdict, cases[place].copy = _DUPLICATE, not repeated.noted
        return [case for case in cases if case.verdict is None]

    def _keep_outcomes(self, cases: list[Case]) -> None:
        """Give the messages of a proven transaction the outcomes that they had in it: all about them is written."""
        kept = {position: outcome for doubt in self.proven for position, outcome in doubt.outcomes.items()}
        for case in cases:
            # Once each: the same delivery handed in twice was a duplicate the second time.
            outcome = kept.pop(case.message.position, None)
            # A key that was free says that the database has lost that transaction since.
            if outcome is not None and case.verdict is not _FRESH:
                case.outcome, case.verdict = outcome, None

    def _learn(self, held: dict[UUID, Held], firsts: dict[UUID, Case]) -> None:
        """Find out from keys whose claim an unknown commit left standing whether it committed."""
        for doubt in self.doubts:
            seen = [key for key in doubt.standing if key in firsts]
            if doubt.proven or any(key in held and held[key].attempt_id == doubt.attempt for key in seen):
                self.proven.append(doubt)
            elif any(key not in held or key not in doubt.releasable for key in seen):
                self.disproved.append(doubt)

    async def _handle(self, caller: Caller, cases: list[Case]) -> None:
        """Give every message its outcome, in order, up to the first Retry."""
        if self.condemned is None:
            await self._call(caller, [case for case in cases if case.verdict is _FRESH and case.outcome is None])
        for case in cases:
            if case.outcome is None:
                case.outcome = self._without_handler(case)
            elif isinstance(case.outcome, Retry):
                break

    async def _call(self, caller: Caller, fresh: list[Case]) -> None:
        """Call a handler for each message, or once for all neighbours of a batch handler; stop at a Retry."""
        for route, neighbours in groupby(fresh, key=attrgetter("route")):
            if route.handler.batch and not self.lone:
                await caller.call_batch(list(neighbours))
                continue
            for case in neighbours:
                if failpoint.active:
                    await failpoint.reached("handler.before")
                case.outcome = await caller.call(case)
                if isinstance(case.outcome, Retry):
                    return

    def _without_handler(self, case: Case) -> Outcome:
        """Return the outcome of a message whose handler is not called."""
        if case.unreadable is not None:
            return Quarantined(case.unreadable.reason, case.unreadable.error)
        if not case.routed:
            return self.condemned or Quarantined(Reason.UNROUTED, "No handler is declared for this topic and event type. Declare one.")
        match case.verdict:
            case Conflict(fields):
                return Quarantined(Reason.CONFLICT, "The key is settled with another content.", fields)
            case Duplicate(answer):
                first = case.first.outcome if case.first is not None else None
                answer = first if isinstance(first, Rejected) else answer
                return _SKIPPED if answer is None else Skipped(answer)
            case Unverified():
                return Skipped()
            case Fresh() | None:
                assert self.condemned is not None
                return self.condemned
            case _:
                assert_never(case.verdict)

    async def _settle(self, connection: Connection, caller: Caller, cases: list[Case], settled: list[Case]) -> None:
        """Write what the outcomes demand, one statement each, if any."""
        tables = self.tables
        await caller.synchronizer.before_commit()
        if not connection.in_transaction():
            # Each statement that is sent from here on would commit by itself.
            raise TransactionLost
        await caller.unit.flush()
        await failpoint.reached("flush.after")
        await self._settle_others(connection, [case for case in cases if type(case.outcome) is not Applied])
        await tables.outbox.add(connection, caller.unit.records)
        self.records = len(caller.unit.records)
        if self.lone:
            message = settled[0].message
            await tables.attempts.forget(connection, self.seal.slot(message), message.offset)

    async def _settle_others(self, connection: Connection, cases: list[Case]) -> None:
        """Write what the outcomes demand of messages that are not applied; what was applied has its claim and needs no more."""
        inbox = self.tables.inbox
        claimed = [case for case in cases if case.verdict is _FRESH]
        dropped = [case.reading.key_hash for case in claimed if case.outcome is None or isinstance(case.outcome, Retry)]
        statuses = [(case.reading.key_hash, status) for case in claimed if (status := _STATUS.get(type(case.outcome)))]
        await inbox.settle(connection, self.attempt, dropped, statuses)
        refusals = [(case.reading.key_hash, case.outcome) for case in claimed if isinstance(case.outcome, Rejected)]
        await inbox.answer(connection, refusals)
        settled = [case for case in cases if case.outcome is not None and not isinstance(case.outcome, Retry)]
        await self.tables.quarantine.add(connection, [entry for case in settled if (entry := entry_of(case, self.group))])
        await inbox.repeat(connection, copies_of([case for case in settled if case.message.offset >= self.seal.passed]))

    async def _commit(self, connection: Connection, caller: Caller, cases: list[Case]) -> Result:
        outcomes = [case.outcome for case in cases if case.outcome is not None]
        try:
            await connection.commit()
        except CommitUnknown:
            await caller.dropped.after_rollback()
            return self._in_doubt(caller, cases)
        except DatabaseFailure as error:
            await caller.dropped.after_rollback()
            await caller.synchronizer.after_rollback()
            return self._failed(error, connection, cases)
        await failpoint.reached("commit.after")
        await caller.synchronizer.after_commit()
        await caller.dropped.after_rollback()
        await failpoint.reached("synchronizers.after")
        return Settled(outcomes)

    def _in_doubt(self, caller: Caller, cases: list[Case]) -> InDoubt:
        settled = [(case, case.outcome) for case in cases if case.outcome is not None and not isinstance(case.outcome, Retry)]
        claimed = [(case.reading.key_hash, outcome) for case, outcome in settled if case.verdict is _FRESH]
        # Of the same delivery handed in twice, the first.
        outcomes: dict[Position, Outcome] = {case.message.position: outcome for case, outcome in reversed(settled)}
        return InDoubt(
            attempt=self.attempt,
            standing=frozenset(key for key, _ in claimed),
            releasable=frozenset(key for key, outcome in claimed if isinstance(outcome, Quarantined)),
            outcomes=outcomes,
            synchronizer=caller.synchronizer,
        )

    def _failed(self, error: Exception, connection: Connection, cases: list[Case]) -> Result:
        if isinstance(error, Culprit):
            return Blamed(cases.index(error.case), str(error), error.retry, error.final)
        if isinstance(error, InfrastructureFailed | KeysVanish) or connection.fault is Fault.INFRASTRUCTURE:
            return Unavailable(describe(error))
        text = str(error) if isinstance(error, CulpritUnknown) else describe(error)
        # That the transaction is aborted says nothing; the error that somebody swallowed does.
        swallowed = connection.fault is Fault.ABORTED and connection.cause is not None and connection.cause not in text
        return Broken(f"{text.rstrip('.')}. The first statement that failed: {connection.cause}" if swallowed else text)


def _give_verdicts(cases: Sequence[Case]) -> None:
    """Compare each message with the copy that holds its key, a row or an earlier neighbour; fresh is what meets none."""
    for case in cases:
        if case.first is not None:
            case.held = case.first.held or case.first.holding()
        if case.held is not None:
            case.verdict = compare(case.held, case.holding(), case.under)
            case.copy = case.held.position != (case.topic, case.message.partition, case.message.offset)
        elif case.verdict is None:
            case.verdict = _FRESH


_FRESH = Fresh()
_DUPLICATE = Duplicate(None)
_SKIPPED = Skipped()
_STATUS = {Rejected: "r", Quarantined: "q"}

"""Settle each message once: batches, and what follows when one fails."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import assert_never

from consumer_idem import telemetry
from consumer_idem.consumer.batch import Batch, Tables
from consumer_idem.consumer.handler import RetryPolicy, Routes
from consumer_idem.consumer.marks import Marks
from consumer_idem.consumer.result import Blamed, Broken, Explained, InDoubt, Result, SealRefused, Settled, Unavailable
from consumer_idem.consumer.retry import Plan
from consumer_idem.consumer.seal import Seal
from consumer_idem.errors import CommitUnknown, DatabaseFailure, QuarantineFailed
from consumer_idem.message import Message, Position
from consumer_idem.outcome import Outcome, Quarantined, Reason, Retry, settled_count
from consumer_idem.sql import Queries
from consumer_idem.transaction.short import short
from consumer_idem.transaction.silent import end_silent

log = logging.getLogger(__name__)

_ALONE_AFTER = 2
"""So many infrastructure errors in a row, and the batch runs one message per transaction."""
_PATIENCE = timedelta(minutes=10)
"""So long may one message alone fail with infrastructure errors before that is its own fault: if the database takes the count of it."""


@dataclass(slots=True)
class Course:
    """What a lane remembers from one run to the next. It dies with the lane.

    `retries`: how often it has waited for its next message. `unavailable`: infrastructure errors in a row, since when. `repeating`: most
    messages of its last transaction were duplicates, as in a replay. `blamed`: the message whose call failed last in a transaction with
    others: that was the first of its attempts.
    """

    seal: Seal
    plan: Plan = field(default_factory=Plan)
    doubts: list[InDoubt] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    retries: int = 0
    repeating: bool = False
    blamed: Position | None = None
    unavailable: int = 0
    unavailable_since: float = 0.0

    def settled(self, messages: Sequence[Message]) -> None:
        """These messages are settled: the next transaction starts behind them, and what is in doubt about them is of no use any more."""
        self.seal.advance(messages)
        for doubt in self.doubts:
            for message in messages:
                doubt.outcomes.pop(message.position, None)
        self.doubts = [doubt for doubt in self.doubts if doubt.outcomes]


class Processor:
    """Settles messages through batches of one transaction each. `on_records` hears of commits that have left records."""

    def __init__(self, tables: Tables, routes: Routes, group: str, *, on_records: Callable[[], None] = lambda: None) -> None:
        self._tables = tables
        self._routes = routes
        self._group = group
        self._on_records = on_records
        self._marks = Marks(tables)

    async def process(self, course: Course, messages: Sequence[Message]) -> list[Outcome]:
        """Return the outcomes in input order; fewer if the course is stopping, or if the last one is Retry.

        Raises Fenced or DatabaseRewound if that is why a seal failed.
        """
        outcomes: list[Outcome] = []
        while len(outcomes) < len(messages) and not course.stopping.is_set():
            left = messages[len(outcomes) :]
            settled = await self._settle(course, left[: course.plan.size(len(left))])
            outcomes += settled
            if settled and isinstance(settled[-1], Retry):
                course.plan.settled(len(settled) - 1)
                course.retries = 1 if len(outcomes) > 1 else course.retries + 1
                break
            if settled:
                course.plan.settled(len(settled))
                course.retries = 0
        return outcomes

    async def quarantine(self, course: Course, message: Message, outcome: Quarantined) -> bool:
        """Quarantine a message that no handler may see; return False if the course is stopping before that is done."""
        while not course.stopping.is_set():
            result = await self._run(course, [message], lone=False, condemned=outcome, routes=Routes(()))
            if isinstance(result, Broken | Blamed):
                raise QuarantineFailed(f"What lies at {message.position} could not be quarantined: {result}.")
            if await self._follow(course, [message], result):
                return True
        return False

    async def _settle(self, course: Course, chunk: Sequence[Message]) -> Sequence[Outcome]:
        """Run one transaction; return the outcomes it settled, none if it has to be tried otherwise."""
        lone = course.plan.lone
        try:
            if course.plan.in_doubt:
                result = await self._marks.run(course.seal, chunk[0], partial(self._in_doubt, course, chunk[0]))
            else:
                result = await self._run(course, chunk, lone=lone)
            if lone and isinstance(result, Broken):
                return await self._count(course, chunk[0], result.error, final=False)
            if lone and isinstance(result, Blamed) and result.retry is None:
                return await self._count(course, chunk[0], result.error, final=result.final)
        except (DatabaseFailure, CommitUnknown) as error:
            result = Unavailable(str(error))
        return await self._follow(course, chunk, result)

    async def _follow(self, course: Course, chunk: Sequence[Message], result: Explained) -> Sequence[Outcome]:
        """Return what is settled, or change the plan for the next transaction."""
        match result:
            case Settled(outcomes):
                course.unavailable = 0
                self._advance(course, chunk, outcomes)
                return outcomes
            case Blamed(index, error, retry, _):
                log.info("message failed, runs alone", extra={"position": chunk[index].position, "error": error})
                if retry is not None and index == 0:
                    return [retry]
                course.blamed = chunk[index].position if retry is None else None
                course.plan.isolate(index)
            case Broken(error):
                log.warning("transaction undone, half of its messages run next", extra={"error": error, "messages": len(chunk)})
                course.plan.halve(len(chunk))
            case InDoubt(attempt):
                log.warning("commit is unknown, its messages run again", extra={"attempt": str(attempt), "messages": len(chunk)})
            case Unavailable(error):
                return await self._back_off(course, chunk, error)
            case _:
                assert_never(result)
        return ()

    def _advance(self, course: Course, chunk: Sequence[Message], outcomes: Sequence[Outcome]) -> None:
        settled = settled_count(outcomes)
        if settled:
            course.settled(chunk[:settled])

    async def _run(
        self, course: Course, chunk: Sequence[Message], *, lone: bool, condemned: Quarantined | None = None, routes: Routes | None = None
    ) -> Explained:
        """Run one batch, then settle the doubts about earlier commits that it has decided."""
        batch = Batch(
            tables=self._tables,
            routes=routes or self._routes,
            seal=course.seal,
            group=self._group,
            messages=chunk,
            lone=lone,
            retries=course.retries,
            failures=_earlier(course, chunk[0]) if lone else 0,
            condemned=condemned,
            doubts=tuple(course.doubts),
            # Without progress the same delivery may stand anywhere, and its place tells it from a copy only if it was claimed.
            expect_repeats=course.repeating and course.seal.fence is not None,
        )
        with telemetry.transaction(chunk) as measured:
            result = await batch.run()
            measured.ended(type(result).__name__.lower(), result.outcomes if isinstance(result, Settled) else ())
        course.repeating = batch.repeats * 2 > len(chunk)
        await self._decide(course, batch, result)
        if isinstance(result, Settled):
            _tell_quarantined(chunk, result.outcomes)
        if batch.records and isinstance(result, Settled):
            self._on_records()
        if isinstance(result, SealRefused):
            await course.seal.explain(self._tables.database)
            return Broken("The transaction was ended inside a handler.")
        return result

    async def _decide(self, course: Course, batch: Batch, result: Result) -> None:
        """Keep what is in doubt, with what this transaction has found out about it; run the functions of what is decided."""
        course.doubts = [doubt for doubt in course.doubts if doubt not in batch.disproved]
        if isinstance(result, InDoubt) and result.standing:
            course.doubts.append(result)
        for doubt in batch.proven:
            # Only a commit makes it lasting: from then on the seal notices a database that has lost both.
            doubt.proven |= isinstance(result, Settled) and settled_count(result.outcomes) > 0
            await doubt.synchronizer.after_commit()
        for doubt in batch.disproved:
            await doubt.synchronizer.after_rollback()

    async def _back_off(self, course: Course, chunk: Sequence[Message], error: str) -> Sequence[Outcome]:
        now = time.monotonic()
        course.unavailable += 1
        if course.unavailable == 1:
            course.unavailable_since = now
        log.warning("database unavailable, trying again", extra={"error": error, "failures": course.unavailable})
        if course.unavailable >= _ALONE_AFTER:
            course.plan.one_by_one(len(chunk))
        if len(chunk) == 1 and now - course.unavailable_since > _PATIENCE.total_seconds():
            with contextlib.suppress(DatabaseFailure, CommitUnknown):
                # What may have ended the server must be on its disk before the next try.
                return await self._count(course, chunk[0], error, final=False, begin="begin_short")
        await end_silent(self._tables.database, self._tables.schema, self._tables.begin.statement_timeout)
        delay = random.uniform(0, min(10.0, 0.05 * 2 ** min(course.unavailable, 10)))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(course.stopping.wait(), delay)
        return ()

    # One message alone

    async def _count(
        self, course: Course, message: Message, error: str, *, final: bool, begin: str = "begin_counting"
    ) -> Sequence[Outcome]:
        """Count a failed lone run where no crash of this process forgets it; quarantine the message once its attempts are used up."""
        log.warning("message failed alone", extra={"position": message.position, "error": error})
        script = Queries("transaction", self._tables.schema)[begin]
        async with short(self._tables.database, self._tables.schema, script=script) as connection:
            slot, fence = course.seal.slot(message), course.seal.fence
            failures = await self._tables.attempts.count_failure(connection, slot, message.offset, error, fence)
        if failures is None:
            await course.seal.explain(self._tables.database)
            return ()
        if not final and failures + _earlier(course, message) < self._policy(message).attempts:
            return ()
        return await self._condemn(course, message, Reason.ATTEMPTS_USED_UP, error)

    async def _in_doubt(self, course: Course, message: Message, marks: int) -> Explained:
        """Run a message that a process may have died of; quarantine it once too many have."""
        if course.stopping.is_set():
            return Settled([])
        if marks > self._policy(message).crashes:
            return await self._condemned(course, message, Reason.CRASHED, "The process died each time it handled this message.")
        return await self._run(course, [message], lone=True)

    async def _condemn(self, course: Course, message: Message, reason: Reason, error: str) -> Sequence[Outcome]:
        """Quarantine one message without calling its handler."""
        return await self._follow(course, [message], await self._condemned(course, message, reason, error))

    async def _condemned(self, course: Course, message: Message, reason: Reason, error: str) -> Explained:
        result = await self._run(course, [message], lone=True, condemned=Quarantined(reason, error))
        if isinstance(result, Broken | Blamed):
            raise QuarantineFailed(f"Message {message.position} could not be quarantined: {result}.")
        return result

    def _policy(self, message: Message) -> RetryPolicy:
        route = self._routes.find(message)
        return RetryPolicy() if route is None else route.handler.policy


def _earlier(course: Course, message: Message) -> int:
    """Return how many attempts of a message that runs alone are not in the database: the one that failed among others, if it did."""
    return int(course.blamed == message.position)


def _tell_quarantined(chunk: Sequence[Message], outcomes: Sequence[Outcome]) -> None:
    """Log once per reason how many messages of a transaction went into quarantine, and where the first of them lies."""
    if Quarantined not in set(map(type, outcomes)):
        return
    kept = [(outcome, message) for message, outcome in zip(chunk, outcomes, strict=False) if isinstance(outcome, Quarantined)]
    for reason in {outcome.reason for outcome, _ in kept}:
        of_reason = [(outcome, message) for outcome, message in kept if outcome.reason is reason]
        first, message = of_reason[0]
        extra = {"reason": reason.value, "messages": len(of_reason), "position": message.position, "error": first.error}
        log.warning("messages quarantined", extra=extra)

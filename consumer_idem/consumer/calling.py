"""Calling handlers, and what an exception of theirs means. The four failure cases are told apart here."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer_idem.consumer.case import Case, Item
from consumer_idem.consumer.deadline import within
from consumer_idem.consumer.handler import Handler, RetryPolicy
from consumer_idem.errors import ConsumerIdemError, RetryLater
from consumer_idem.outcome import Applied, Outcome, Quarantined, Reason, Rejected, Retry
from consumer_idem.ports import Fault
from consumer_idem.stored import stored_text
from consumer_idem.transaction.synchronizer import Synchronizer
from consumer_idem.transaction.tx import Tx, active
from consumer_idem.transaction.uncancelled import escaped
from consumer_idem.transaction.unit import Unit

log = logging.getLogger(__name__)

_MOST_TRACEBACKS = 1000
_SAVEPOINT = "SAVEPOINT consumer_idem_lone"
_UNDO = "ROLLBACK TO SAVEPOINT consumer_idem_lone"
_APPLIED = Applied()


class HandlerReturned(ConsumerIdemError):
    """A handler returned something else than None or Rejected. Correct the handler; publish values with `tx.publish`."""


class InfrastructureFailed(Exception):
    """The database connection failed under the handler: nobody's fault."""


class CulpritUnknown(Exception):
    """The transaction is broken, and the message that shows it need not be the one that broke it."""


class Culprit(Exception):
    """This message's handler raised after it had sent statements."""

    def __init__(self, case: Case, error: BaseException, retry: Retry | None, final: bool) -> None:
        super().__init__(describe(error))
        self.case = case
        self.retry = retry
        self.final = final


def describe(error: BaseException) -> str:
    """Return `Type: message`, without what PostgreSQL's text cannot hold."""
    return stored_text(f"{type(error).__name__}: {error}")


_told: set[tuple[str, type[BaseException], int]] = set()


def _tell(case: Case, error: Exception) -> None:
    """Log that a handler failed; with its traceback the first time that it fails at this place in this way."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (case.handler.name, type(error), 0 if trace is None else trace.tb_lineno)
    first = place not in _told and len(_told) < _MOST_TRACEBACKS
    if first:
        _told.add(place)
    extra = {"handler": place[0], "position": case.message.position, "error": describe(error)}
    log.warning("handler failed", extra=extra, exc_info=error if first else None)


@dataclass(slots=True)
class Caller:
    """Calls the handlers of one transaction and collects what they want to leave.

    `lone`: the transaction holds one message that, or whose neighbour, failed before. `retries`: how often the lane has
    waited for its first message already. `dropped` are registrations of calls whose effect is undone.
    """

    unit: Unit
    lone: bool
    retries: int
    synchronizer: Synchronizer = field(default_factory=Synchronizer)
    dropped: Synchronizer = field(default_factory=Synchronizer)

    async def call(self, case: Case) -> Outcome:
        """Call the handler for one message until it succeeds, refuses, asks for a retry, or has used up its attempts."""
        while True:
            handler, tx, mark = case.route.handler, self._tx(case), self.unit.mark()
            if self.lone:
                await self.unit.connection.execute(_SAVEPOINT)
            try:
                items = self._items([case]) if handler.batch else ()
                result = await self._handle(tx, handler, items or case.payload, items)
                outcome = _outcome(handler, result, items[0] if items else None)
            except Exception as error:
                self._drop(tx, mark)
                judged = await self._judge(case, tx, error)
                if judged is not None:
                    return judged
                unreadable = case.read_again()
                if unreadable is not None:
                    return Quarantined(unreadable.reason, unreadable.error)
            else:
                if tx.registered:
                    self.synchronizer.join(tx.registered)
                return outcome

    async def call_batch(self, cases: Sequence[Case]) -> None:
        """Call a batch handler once for all; whatever it raises, nobody knows which message is to blame."""
        handler, source = cases[0].handler, cases[0].handler.source.name
        shared = Tx(self.unit, None, None, source)
        items = self._items(cases)
        try:
            result = await self._handle(shared, handler, items, items)
            if result is not None:
                raise HandlerReturned(f"Batch handler {handler.name!r} returned {type(result).__name__}: use `item.reject(…)`.")
        except Exception as error:
            if shared.registered:
                self.dropped.join(shared.registered)
            raise self._broken(error) or CulpritUnknown(describe(error)) from error
        for case, item in zip(cases, items, strict=True):
            case.outcome = item.rejection or _APPLIED
        if shared.registered:
            self.synchronizer.join(shared.registered)

    def _tx(self, case: Case) -> Tx:
        return Tx(self.unit, case.message, case.reading.key_hash, case.handler.source.name)

    def _items(self, cases: Sequence[Case]) -> Sequence[Item[Any]]:
        return [Item(self.unit, case) for case in cases]

    def _drop(self, tx: Tx, mark: tuple[int, int]) -> None:
        self.unit.undo_to(mark)
        if tx.registered:
            self.dropped.join(tx.registered)

    async def _handle(self, tx: Tx, handler: Handler, given: Any, items: Sequence[Item[Any]]) -> Any:
        token = active.set(tx)
        try:
            call = handler.function(given, tx)
            return await (call if handler.policy.deadline is None else within(handler.policy.deadline, call))
        except asyncio.CancelledError as error:
            raise escaped(error) from None
        finally:
            tx.end()
            for item in items:
                item.end()
            active.reset(token)

    async def _judge(self, case: Case, tx: Tx, error: Exception) -> Outcome | None:
        """Return what the raised error makes of the message; None: call again. Raise if the transaction must end."""
        broken = self._broken(error)
        if broken is not None:
            raise broken from error
        if isinstance(error, Rejected) and (self.lone or not tx.sent):
            await self._undo(tx)
            return error
        policy = case.handler.policy
        if isinstance(error, policy.release_on) and (self.lone or not tx.sent):
            await self._undo(tx)
            case.failures += 1
            return Quarantined(Reason.NOT_YET, describe(error), release_after=policy.release_after)
        retry, final = self._retry(policy, error), isinstance(error, policy.quarantine_on)
        if retry is None:
            _tell(case, error)
        if tx.sent:
            raise Culprit(case, error, retry, final) from error
        if retry is not None:
            return retry
        case.failures += 1
        if final or case.failures >= policy.attempts:
            return Quarantined(Reason.ATTEMPTS_USED_UP, describe(error))
        return None

    def _broken(self, error: Exception) -> Exception | None:
        connection = self.unit.connection
        if connection.fault is Fault.INFRASTRUCTURE:
            return InfrastructureFailed(describe(error))
        if self.unit.flush_failed or connection.fault is Fault.ABORTED or not connection.in_transaction():
            return CulpritUnknown(describe(error))
        return None

    async def _undo(self, tx: Tx) -> None:
        if tx.sent:
            await self.unit.connection.execute(_UNDO)
            self.unit.connection.fault = None

    def _retry(self, policy: RetryPolicy, error: Exception) -> Retry | None:
        if isinstance(error, RetryLater):
            return Retry(error.after)
        retried = isinstance(error, policy.retry_on) and not isinstance(error, policy.release_on)
        return Retry(policy.delay(self.retries)) if retried else None


def _outcome(handler: Handler, result: Any, item: Item[Any] | None) -> Outcome:
    """Return what a handler's result, or its refusal of the one item, makes of the message."""
    if result is None:
        return _APPLIED if item is None or item.rejection is None else item.rejection
    if isinstance(result, Rejected):
        return result
    raise HandlerReturned(f"Handler {handler.name!r} returned {type(result).__name__}: it must return None or Rejected.")

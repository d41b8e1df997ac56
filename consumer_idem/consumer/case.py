"""One message on its way through a batch, and what a batch handler sees of it."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

from consumer_idem.consumer.handler import Handler, Route
from consumer_idem.inbox.fingerprint import Print
from consumer_idem.inbox.source import Reading, Unreadable
from consumer_idem.inbox.verdict import Held, Verdict
from consumer_idem.message import Message
from consumer_idem.outcome import Outcome, Rejected
from consumer_idem.transaction.publishing import Publishing
from consumer_idem.transaction.unit import Unit

P = TypeVar("P")


class Case:
    """A message with all that is known about it so far in this transaction.

    `reading` is what the source read of it, and is there only if it is `identified`: with a handler and an idempotency key.
    `route` is its handler with its registered ids, and is there only if it is `routed`. `copy`: its key is held by another delivery,
    which is still to be noted. There are thousands of cases at a time: what they hold is plain attributes.
    """

    __slots__ = (
        "copy", "failures", "first", "held", "identified", "message", "outcome", "payload", "reading", "route", "routed", "topic",
        "unreadable", "verdict",
    )  # fmt: skip

    reading: Reading[Any]
    route: Route

    def __init__(self, message: Message, topic: int, route: Route | None) -> None:
        self.message = message
        self.topic = topic
        self.copy = False
        self.failures = 0
        self.first: Case | None = None
        self.held: Held | None = None
        self.verdict: Verdict | None = None
        self.outcome: Outcome | None = None
        self.payload: Any = None
        self.unreadable: Unreadable | None = None
        self.identified = False
        self.routed = route is not None
        if route is not None:
            self.route = route
            reading = route.read(message)
            if isinstance(reading, Unreadable):
                self.unreadable = reading
            else:
                self.identified = True
                self.reading = reading
                self.payload = reading.payload

    @property
    def handler(self) -> Handler:
        """The message's handler."""
        return self.route.handler

    def holding(self) -> Held:
        """Return the message as the copy that holds its key."""
        reading, message = self.reading, self.message
        return Held(
            attempt_id=None,
            scope=self.route.scope,
            source=self.route.source,
            tenant=reading.tenant,
            message_id=reading.message_id,
            position=(self.topic, message.partition, message.offset),
            fingerprint=reading.fingerprint,
            fingerprint_version=reading.fingerprint_version,
            field_digests=reading.field_digests,
        )

    def under(self, version: int) -> Print | None:
        """Return the message's fingerprint under `version`, None if the source does not know it."""
        return self.handler.source.fingerprint_under(version, self.payload, self.message)

    def read_again(self) -> Unreadable | None:
        """Make a new payload: the handler that raised may have changed the one that it was given.

        Returns what went wrong if a function of the user's does not read the same message the same way twice.
        """
        reading = self.route.read(self.message)
        if isinstance(reading, Unreadable):
            return reading
        self.payload = reading.payload
        return None


def firsts_of(cases: Sequence[Case]) -> dict[UUID, Case]:
    """Return the first message of each key, and tell the others of it."""
    firsts: dict[UUID, Case] = {}
    for case in cases:
        first = firsts.setdefault(case.reading.key_hash, case)
        if first is not case:
            case.first = first
    return firsts


class Item(Publishing, Generic[P]):
    """One message as a batch handler sees it. What it publishes carries this message's idempotency key."""

    __slots__ = ("message", "payload", "rejection")

    def __init__(self, unit: Unit, case: Case) -> None:
        super().__init__(unit, case.message, case.reading.key_hash, case.reading.source)
        self.message = case.message
        self.payload: P = case.payload
        self.rejection: Rejected | None = None

    def reject(self, rejected: Rejected) -> None:
        """Refuse this message; what the handler wrote for it stays, and a repeat gets the same refusal."""
        self.rejection = rejected

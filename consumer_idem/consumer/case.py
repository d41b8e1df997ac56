"""One message on its way through a batch, and what a batch handler sees of it."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from uuid import UUID

from consumer_idem.consumer.handler import Handler, Route
from consumer_idem.inbox.fingerprint import Print
from consumer_idem.inbox.source import Reading, Unreadable
from consumer_idem.inbox.verdict import Held, Verdict
from consumer_idem.message import Message
from consumer_idem.outcome import Outcome, Rejected
from consumer_idem.transaction.tx import Tx

P = TypeVar("P")


class Case:
    """A message with all that is known about it so far in this transaction."""

    __slots__ = ("_reading", "_route", "failures", "first", "held", "message", "outcome", "payload", "topic", "unreadable", "verdict")

    def __init__(self, message: Message, topic: int, route: Route | None) -> None:
        self.message = message
        self.topic = topic
        self.failures = 0
        self.first: Case | None = None
        self.held: Held | None = None
        self.verdict: Verdict | None = None
        self.outcome: Outcome | None = None
        self.payload: Any = None
        self.unreadable: Unreadable | None = None
        self._route = route
        self._reading: Reading[Any] | None = None
        if route is not None:
            reading = route.read(message)
            if isinstance(reading, Unreadable):
                self.unreadable = reading
            else:
                self._reading = reading
                self.payload = reading.payload

    @property
    def identified(self) -> bool:
        """Whether the message has a handler and an idempotency key."""
        return self._reading is not None

    @property
    def routed(self) -> bool:
        """Whether the message has a handler."""
        return self._route is not None

    @property
    def reading(self) -> Reading[Any]:
        """What the source read of the message."""
        assert self._reading is not None
        return self._reading

    @property
    def route(self) -> Route:
        """The message's handler with its registered ids."""
        assert self._route is not None
        return self._route

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

    def read_again(self) -> None:
        """Make a new payload: the handler that raised may have changed the one that it was given."""
        reading = self.route.read(self.message)
        assert not isinstance(reading, Unreadable)
        self.payload = reading.payload


class Item(Generic[P]):
    """One message as a batch handler sees it. What it publishes carries this message's idempotency key."""

    __slots__ = ("message", "payload", "publish", "rejection", "uuid")

    def __init__(self, payload: P, tx: Tx) -> None:
        self.payload = payload
        self.message: Message = tx.message
        self.publish: Callable[..., UUID] = tx.publish
        """Like `tx.publish`."""
        self.uuid: Callable[[], UUID] = tx.uuid
        """Like `tx.uuid`."""
        self.rejection: Rejected | None = None

    def reject(self, rejected: Rejected) -> None:
        """Refuse this message; what the handler wrote for it stays, and a repeat gets the same refusal."""
        self.rejection = rejected

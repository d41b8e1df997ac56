"""A user's handler with its policy, and the table that finds it for a message."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.source import Reading, Source, Unreadable, event_type
from consumer_idem.message import Message

Read = Callable[[Message], Reading[Any] | Unreadable]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What follows when a handler raises.

    `attempts`: so often it is called for one message before that is quarantined; once more if it sent statements and this is 1.
    `retry_on`: errors that stop the partition and try again, after `first_delay` doubled up to `max_delay`, with full
    jitter, for ever and never counted. `quarantine_on`: errors that no further attempt can mend.
    `release_on`: errors that later messages may mend (its account does not exist yet). The message is quarantined and the
    partition goes on; `run` releases the entry by itself after `release_after`, doubled with each failure up to
    `max_release_after`, `releases` times, then a person must. This gives up the order: messages behind it, those of its own
    Kafka key too, are applied before it. Use `retry_on` where that matters. An error in several of the three:
    `release_on` goes before `retry_on`, that before `quarantine_on`.
    `crashes`: so many process deaths in this message's run before it is quarantined.
    `deadline`: a call that takes longer is cancelled and counts as failed; None for no limit.
    """

    attempts: int = 3
    retry_on: tuple[type[Exception], ...] = ()
    quarantine_on: tuple[type[Exception], ...] = ()
    release_on: tuple[type[Exception], ...] = ()
    release_after: timedelta = timedelta(minutes=1)
    max_release_after: timedelta = timedelta(hours=1)
    releases: int = 20
    first_delay: timedelta = timedelta(milliseconds=200)
    max_delay: timedelta = timedelta(seconds=30)
    crashes: int = 3
    deadline: timedelta | None = None

    def __post_init__(self) -> None:
        for name in ("retry_on", "quarantine_on", "release_on"):
            errors = getattr(self, name)
            if not isinstance(errors, tuple) or not all(isinstance(error, type) and issubclass(error, Exception) for error in errors):
                raise DeclarationError(f"RetryPolicy({name}={errors!r}) is not a tuple of exception types: {name}=(ConnectionError,).")
        for name in ("attempts", "crashes", "releases"):
            if getattr(self, name) < 1:
                raise DeclarationError(f"RetryPolicy({name}={getattr(self, name)}) must be at least 1.")
        for name in ("first_delay", "max_delay", "release_after", "max_release_after", "deadline"):
            duration = getattr(self, name)
            if duration is not None and duration <= timedelta(0):
                raise DeclarationError(f"RetryPolicy({name}={duration}) must be longer than nothing.")

    def delay(self, retries: int) -> timedelta:
        """Return how long to wait before retry number `retries` + 1."""
        longest: timedelta = min(self.max_delay, self.first_delay * (1 << min(retries, 32)))
        return random.random() * longest


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What `@app.handler` or `@app.batch_handler` declared."""

    name: str
    scope: str
    topic: str
    type: str | None
    source: Source[Any]
    function: Callable[..., Awaitable[Any]]
    batch: bool = False
    policy: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A handler with the ids under which its scope and source are registered in the database."""

    handler: Handler
    scope: int
    source: int
    read: Read


class Routes:
    """Finds the route of a message by its topic and, where handlers ask for one, its event type."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.use(routes)

    def use(self, routes: Sequence[Route]) -> None:
        """Go by these routes from now on."""
        self.all = tuple(routes)
        self._typed = {(route.handler.topic, route.handler.type): route for route in routes}
        self._untyped = {route.handler.topic: route for route in routes if route.handler.type is None}
        self._by_type = {route.handler.topic for route in routes if route.handler.type is not None}

    def find(self, message: Message) -> Route | None:
        """Return the route of `message`, the one without a type if none asks for its type; None if there is neither."""
        topic = message.topic
        if topic in self._by_type:
            route = self._typed.get((topic, event_type(message)))
            if route is not None:
                return route
        return self._untyped.get(topic)

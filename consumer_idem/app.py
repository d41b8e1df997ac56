"""App: register sources and handlers, wire the parts, run and stop. It decides nothing about messages."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from consumer_idem.consumer.handler import Handler, RetryPolicy
from consumer_idem.consumer.offsets import FirstStart
from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.source import Source
from consumer_idem.message import Message
from consumer_idem.outbox.table import Outbox
from consumer_idem.outcome import Outcome
from consumer_idem.ports import Database, Publisher, Subscriber
from consumer_idem.signals import stopping_on_signals

if TYPE_CHECKING:
    from consumer_idem.runtime import Runtime
    from consumer_idem.settings import Settings

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class App:
    """The handlers of one consumer group.

    `group` is Kafka's group.id. `database` is a DSN or a Database; `kafka` the bootstrap servers; what is not given here comes
    from `settings`, by default from the environment (`CONSUMER_IDEM_…`) and `.env`. Flags of `consumer-idem run` go before.
    `subscriber` and `publisher` make adapters of your own for Kafka; a worker that joins the group again makes a new
    subscriber. One App is used by one event loop at a time.
    """

    def __init__(
        self,
        *,
        group: str,
        database: str | Database | None = None,
        kafka: str | None = None,
        settings: "Settings | None" = None,
        subscriber: Callable[[], Subscriber] | None = None,
        publisher: Callable[[], Publisher] | None = None,
    ) -> None:
        if not group:
            raise DeclarationError('App needs a group: the Kafka consumer group, App(group="payments").')
        self.group = group
        self.handlers: list[Handler] = []
        self._database = database
        self._kafka = kafka
        self._settings = settings
        self._subscriber = subscriber
        self._publisher = publisher
        self._runtime: Runtime | None = None
        self._stop: asyncio.Event | None = None

    # Declaring

    def handler(
        self,
        topic: str,
        *,
        source: Source[Any] | None = None,
        name: str | None = None,
        type: str | None = None,
        scope: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> Callable[[F], F]:
        """Declare the handler of a topic's messages: `async def handler(payload, tx) -> None | Rejected`.

        `name` is stable for ever: it is the scope of the idempotency keys; a handler that is renamed says `scope="old name"`.
        `type` takes only messages whose `ce_type` header says so. `retry` is what follows when the handler raises. `source` and
        `name` must be given.
        """
        source, name = _given(topic, source, name)
        return self._declare(
            lambda function: Handler(
                name=name, scope=scope or name, topic=topic, type=type, source=source, function=function, policy=retry or RetryPolicy()
            )
        )

    def batch_handler(
        self,
        topic: str,
        *,
        source: Source[Any] | None = None,
        name: str | None = None,
        type: str | None = None,
        scope: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> Callable[[F], F]:
        """Declare a handler of many messages at once: `async def handler(items: Sequence[Item[P]], tx) -> None`.

        It gets the fresh messages of a batch, refuses single ones with `item.reject(…)` and publishes with `item.publish(…)`. If it
        raises, it is called again with halves of them, down to the one that fails. `source` and `name` must be given.
        """
        source, name = _given(topic, source, name)
        return self._declare(
            lambda function: Handler(
                name=name,
                scope=scope or name,
                topic=topic,
                type=type,
                source=source,
                function=function,
                batch=True,
                policy=retry or RetryPolicy(),
            )
        )

    def _declare(self, make: Callable[[Callable[..., Awaitable[Any]]], Handler]) -> Callable[[F], F]:
        def register(function: F) -> F:
            handler = make(function)
            _check(handler, self.handlers)
            self.handlers.append(handler)
            return function

        return register

    # Running

    def runtime(self, flags: Mapping[str, Any] | None = None) -> "Runtime":
        """Return the wired parts; made at the first call. `flags` are settings that go before what the App was given."""
        if self._runtime is None:
            # Here, so that declaring handlers does not load the database driver and the settings: twice the import time.
            from consumer_idem.runtime import Runtime
            from consumer_idem.settings import settings_from

            flags = flags or {}
            self._refuse_to_replace(flags)
            given = {"database": self._database if isinstance(self._database, str) else None, "kafka": self._kafka}
            known = self._settings.chosen() if self._settings else {}
            known |= {name: value for name, value in given.items() if value is not None}
            self._runtime = Runtime(
                group=self.group,
                handlers=tuple(self.handlers),
                settings=settings_from({**known, **flags}),
                database=None if isinstance(self._database, str) else self._database,
                subscriber=self._subscriber,
                publisher=self._publisher,
            )
        return self._runtime

    def _refuse_to_replace(self, flags: Mapping[str, Any]) -> None:
        """An adapter that the code has made cannot be replaced by a flag; nor is a flag ignored in silence."""
        made = {"database": not isinstance(self._database, str | None)}
        made["kafka"] = made["client"] = self._subscriber is not None or self._publisher is not None
        for name in flags:
            if made.get(name):
                raise DeclarationError(f"--{name} would change nothing: this App makes its own adapter in its code. Leave the flag out.")

    async def open(self) -> None:
        """Connect to the database and register what is declared; raises what contradicts it. `process` and `run` do so themselves."""
        await self.runtime().open()

    def outbox(self, *, in_order: bool = False) -> Outbox:
        """Return an Outbox of the App's schema, for code that is no handler.

        In a process with a relay it refuses, as `tx.publish` does, a record that is too large for its topic.
        """
        return self.runtime().outbox(in_order=in_order)

    async def process(self, messages: Sequence[Message]) -> list[Outcome]:
        """Settle messages that your own consumer loop has fetched; return their outcomes in input order.

        Offsets are yours: commit only once this has returned, and nothing from the first Retry on (everything behind it
        is Retry too: wait, and hand it in again). It returns after an unknown commit is decided, and waits while the
        database is down. There is no progress here, hence no fence against another consumer of the same partition (claims
        still make the effect happen once) and no rewind after a failover to an older database.
        """
        return await self.runtime().process(messages)

    async def run(self, *, relay: bool = True, first_start: FirstStart = "earliest", new_scope: bool = False) -> None:
        """Consume until `stop()`, SIGTERM or SIGINT, then finish what is open; a second signal exits at once.

        `relay`: publish the outbox too. `first_start`: where partitions start that neither Kafka nor the database knows.
        `new_scope`: accept a handler that is new on a topic that the group has read before.
        """
        self._stop = asyncio.Event()
        runtime = self.runtime()
        with stopping_on_signals(self._stop):
            await runtime.run(self._stop, relay=relay, first_start=first_start, new_scope=new_scope)

    async def relay(self) -> None:
        """Publish the outbox and consume nothing, until `stop()`, SIGTERM or SIGINT. Needs no handler."""
        self._stop = asyncio.Event()
        runtime = self.runtime()
        with stopping_on_signals(self._stop):
            await runtime.relay(self._stop)

    def stop(self) -> None:
        """Let `run` or `relay` finish what is open and return."""
        if self._stop is not None:
            self._stop.set()

    async def close(self) -> None:
        """Close the database connections; `run` does so itself."""
        if self._runtime is not None:
            await self._runtime.close()
            self._runtime = None


def _given(topic: object, source: Source[Any] | None, name: str | None) -> tuple[Source[Any], str]:
    """Return what a declaration cannot do without, or say what to write."""
    # `@app.handler` without anything is called with the function itself, and would declare nothing.
    if not isinstance(topic, str) or not topic:
        raise DeclarationError('A handler needs a topic: write @app.handler("payments.requested", source=…, name="apply-payment").')
    if not name:
        raise DeclarationError(f'The handler for topic {topic!r} needs a name that never changes: name="apply-payment".')
    if source is None:
        raise DeclarationError(
            f"Handler {name!r} needs to know what comes in: source=checkout, "
            'where checkout = Source("checkout", model=…, message_id=field(…), fingerprint=Fingerprint(…)).'
        )
    if not isinstance(source, Source):
        raise DeclarationError(f"Handler {name!r}: source= must be a Source, not {type(source).__name__}.")
    return source, name


def _check(handler: Handler, others: Sequence[Handler]) -> None:
    if not any(map(inspect.iscoroutinefunction, (handler.function, type(handler.function).__call__))):
        raise DeclarationError(
            f"Handler {handler.name!r} is a plain function: it would block every partition while it runs. Declare it with `async def`."
        )
    try:
        inspect.signature(handler.function).bind("payload", "tx")
    except TypeError as error:
        raise DeclarationError(
            f"Handler {handler.name!r} cannot be called with two arguments ({error}). Declare it as `async def handler(payload, tx)`."
        ) from None
    for other in others:
        _check_beside(handler, other)


def _check_beside(handler: Handler, other: Handler) -> None:
    if (other.topic, other.type) == (handler.topic, handler.type):
        kind = "messages without a type of their own" if handler.type is None else f"type {handler.type!r}"
        raise DeclarationError(
            f"Handlers {other.name!r} and {handler.name!r} both take {kind} of topic {handler.topic!r}. "
            "Give each another type=, or run the second in an App with another group."
        )
    if other.scope == handler.scope:
        raise DeclarationError(
            f"Two handlers use the scope {handler.scope!r}: they would skip each other's messages. Give each its own name."
        )
    if other.source is not handler.source and other.source.name == handler.source.name:
        raise DeclarationError(f"Two different sources are named {handler.source.name!r}. Share one Source, or name them differently.")

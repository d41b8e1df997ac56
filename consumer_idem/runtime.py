"""The wired parts of an App: database, tables, processor, worker, relay; and their life from open to close."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from consumer_idem import schema
from consumer_idem.consumer.batch import Tables
from consumer_idem.consumer.handler import Handler, Route, Routes
from consumer_idem.consumer.health import Health
from consumer_idem.consumer.lane import Lane, LaneSettings
from consumer_idem.consumer.offsets import FirstStart
from consumer_idem.consumer.processor import Course, Processor
from consumer_idem.consumer.release import Releaser
from consumer_idem.consumer.releasing import Releasing
from consumer_idem.consumer.seal import PlainSeal
from consumer_idem.consumer.worker import Worker
from consumer_idem.errors import CommitUnknown, DatabaseFailure, DeclarationError
from consumer_idem.inbox.attempts import Attempts
from consumer_idem.inbox.registry import Registration, Registry
from consumer_idem.inbox.table import Inbox
from consumer_idem.inbox.topics import Topics
from consumer_idem.loop import Loop
from consumer_idem.message import Message, Partition
from consumer_idem.outbox.backpressure import Backpressure, BackpressureLimits
from consumer_idem.outbox.limits import RecordLimits
from consumer_idem.outbox.table import Outbox
from consumer_idem.outcome import Outcome, Retry
from consumer_idem.ports import Connection, Database, Publisher, Subscriber
from consumer_idem.probes import Probes
from consumer_idem.quarantine.table import Quarantine
from consumer_idem.relaying import Relaying
from consumer_idem.settings import Settings
from consumer_idem.transaction.begin import Begin
from consumer_idem.transaction.short import short
from consumer_idem.watchdog import Watchdog
from consumer_idem.wiring import make_database, make_listener, make_publisher, make_subscriber

log = logging.getLogger(__name__)

_RETRY = timedelta(seconds=1)
_LOOK = timedelta(seconds=5)


class Runtime:
    """Everything that lives as long as the process does. `owner` tells this process start from every other."""

    def __init__(
        self,
        *,
        group: str,
        handlers: Sequence[Handler],
        settings: Settings,
        database: Database | None,
        subscriber: Callable[[], Subscriber] | None,
        publisher: Callable[[], Publisher] | None,
    ) -> None:
        _check(settings)
        self.group = group
        self.handlers = handlers
        self.settings = settings
        self.owner = uuid4()
        self.database = database or make_database(settings)
        limits = BackpressureLimits(depth=settings.outbox_depth_limit, age=settings.outbox_age_limit)
        self._backpressure = Backpressure(self.database, schema=settings.schema_name, limits=limits)
        self._subscriber = subscriber or (lambda: make_subscriber(settings, group))
        self._publisher = publisher or (lambda: make_publisher(settings))
        self._opening = asyncio.Lock()
        self._processor: Processor | None = None
        self._releaser: Releaser | None = None
        self._topics: dict[str, int] = {}
        self._routes = Routes(())
        self._limits = RecordLimits()
        self._wake_relay: Callable[[], None] = lambda: None

    async def open(self, *, new_scope: bool = False) -> Processor:
        """Connect, verify the tables, register the handlers; return the processor."""
        async with self._opening:
            if self._processor is None:
                if not self.handlers:
                    raise DeclarationError("This App has no handler. Declare one with @app.handler(topic, source=…, name=…).")
                await self.open_database()
                await _surely(partial(self._register, new_scope=new_scope))
                self._processor = Processor(self.tables(), self._routes, self.group, on_records=self._records_written)
                self._releaser = Releaser(self.tables(), self._routes, self.group, on_records=self._records_written)
            return self._processor

    async def releaser(self) -> Releaser:
        """Open, and return what releases entries from quarantine."""
        await self.open()
        assert self._releaser is not None
        return self._releaser

    async def open_database(self) -> None:
        """Connect and verify the tables: all that a relay needs, or somebody who only looks."""
        await self.database.open()
        await _surely(partial(schema.verify, self.database, self.settings.schema_name))

    def _records_written(self) -> None:
        self._wake_relay()

    def tables(self) -> Tables:
        """Return the tables that a transaction writes to."""
        name = self.settings.schema_name
        begin = Begin(
            schema=name,
            lock_timeout=self.settings.lock_timeout,
            idle_timeout=self.settings.idle_in_transaction_timeout,
            statement_timeout=self.settings.statement_timeout,
        )
        return Tables(self.database, begin, Inbox(name), Attempts(name), Quarantine(name), Outbox(name), name, self._limits)

    def outbox(self, *, in_order: bool) -> Outbox:
        """See App.outbox."""
        return Outbox(self.settings.schema_name, in_order=in_order, limits=self._limits)

    async def _register(self, *, new_scope: bool) -> None:
        async with short(self.database, self.settings.schema_name) as connection:
            await self._register_within(connection, new_scope=new_scope)

    async def _register_within(self, connection: Connection, *, new_scope: bool) -> None:
        """Register the handlers and go by the ids that they get."""
        name = self.settings.schema_name
        registry, topics, routes = Registry(name), Topics(name), []
        await registry.lock(connection)
        for handler in self.handlers:
            registration = Registration(
                scope=handler.scope,
                topic=handler.topic,
                key_scheme=0 if handler.source.occurred_at is None else 1,
                source=handler.source.name,
                fingerprints=dict(handler.source.contents),
            )
            scope, source = await registry.register(connection, self.group, registration, new_scope=new_scope)
            self._topics[handler.topic] = await topics.current(connection, handler.topic, None)
            routes.append(Route(handler=handler, scope=scope, source=source, read=handler.source.reader(handler.scope)))
        self._routes.use(routes)

    async def _stay_registered(self, connection: Connection) -> None:
        """Register again what a database that went back has lost, or has given other ids since."""
        scopes = {route.handler.scope: route.scope for route in self._routes.all}
        sources = {route.handler.source.name: route.source for route in self._routes.all}
        if not await Registry(self.settings.schema_name).registered(connection, scopes, sources):
            log.error("the database has lost what this process had registered; it is registered again", extra={"scopes": list(scopes)})
            await self._register_within(connection, new_scope=True)

    async def process(self, messages: Sequence[Message]) -> list[Outcome]:
        """See App.process."""
        processor = await self.open()
        seal = PlainSeal(self.group, self._topics, self.settings.schema_name)
        outcomes = await processor.process(Course(seal), messages)
        last = outcomes[-1] if outcomes else None
        rest = last if isinstance(last, Retry) else Retry(_RETRY)
        return outcomes + [rest] * (len(messages) - len(outcomes))

    async def run(self, stop: asyncio.Event, *, relay: bool, first_start: FirstStart, new_scope: bool) -> None:
        """Consume, and relay if asked, until `stop` is set; then finish what is open and close."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            undo.enter_context(Watchdog(self.settings.session_timeout / 3))
            processor = await self.open(new_scope=new_scope)
            undo.push_async_callback(Releasing(await self.releaser(), drain=self.settings.drain_timeout, paused=self._paused).stop)
            if relay:
                relaying = await self.start_relay()
                self._wake_relay = relaying.wake
                undo.push_async_callback(relaying.stop)
            await self._consume(stop, processor, first_start)

    async def _consume(self, stop: asyncio.Event, processor: Processor, first_start: FirstStart) -> None:
        """Run one worker after the other: one whose lanes are stuck leaves the group, and its successor joins anew."""
        topics = sorted({handler.topic for handler in self.handlers})
        while not stop.is_set():
            async with AsyncExitStack() as undo:
                subscriber = self._subscriber()
                worker = self._worker(subscriber, processor, first_start)
                await worker.start(topics)
                undo.push_async_callback(worker.stop)
                health = Health(subscriber, worker.lanes)
                if self.settings.health_port is not None:
                    probes = Probes(self.settings.health_port, {"live": partial(_live, health), "ready": partial(_ready, health)})
                    await probes.start()
                    undo.push_async_callback(probes.stop)
                await self._until_stuck(stop, health)

    async def _until_stuck(self, stop: asyncio.Event, health: Health) -> None:
        watching = Loop("health", health.run_once, idle=_LOOK)
        task = asyncio.create_task(watching.run())
        try:
            while not stop.is_set() and not health.stuck:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _LOOK.total_seconds())
            if not stop.is_set():
                log.error("worker is stuck and joins the group again", extra={"partitions": health.stuck})
        finally:
            watching.stop()
            await task

    async def relay(self, stop: asyncio.Event) -> None:
        """Publish the outbox until `stop` is set; then close."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            await self.open_database()
            undo.push_async_callback((await self.start_relay()).stop)
            await stop.wait()

    def _worker(self, subscriber: Subscriber, processor: Processor, first_start: FirstStart) -> Worker:
        limits = BackpressureLimits(depth=self.settings.outbox_depth_limit, age=self.settings.outbox_age_limit)
        backpressure = Backpressure(self.database, schema=self.settings.schema_name, limits=limits)

        async def paused() -> bool:
            try:
                return await backpressure.paused()
            except (DatabaseFailure, CommitUnknown):
                # Nothing can be settled now either.
                return True

        settings = LaneSettings(
            group=self.group,
            owner=self.owner,
            schema=self.settings.schema_name,
            batch_size=self.settings.batch_size,
            first_start=first_start,
            paused=self._paused,
            stay_registered=self._stay_registered,
        )

        def make_lane(partition: Partition) -> Lane:
            return Lane(partition, subscriber, self.database, processor, settings)

        return Worker(subscriber, make_lane, drain=self.settings.drain_timeout)

    async def _paused(self) -> bool:
        """Whether nothing that leaves records is to be handled now, because the outbox is too deep or too old."""
        try:
            return await self._backpressure.paused()
        except (DatabaseFailure, CommitUnknown):
            # Nothing can be settled now either.
            return True

    async def start_relay(self) -> Relaying:
        """Start to publish the outbox, and all that goes with it."""
        relaying = Relaying(
            self.database,
            self._publisher(),
            schema=self.settings.schema_name,
            owner=self.owner,
            listener=make_listener(self.settings),
            limits=self._limits,
        )
        await relaying.start()
        return relaying

    async def close(self) -> None:
        """Close the database connections."""
        await self.database.close()
        self._processor = None


T = TypeVar("T")


async def _surely(step: Callable[[], Awaitable[T]]) -> T:
    """Take a step of the start again whose commit got no clear answer: taken twice it is the same as once."""
    while True:
        try:
            return await step()
        except CommitUnknown:
            log.warning("commit is unknown; the step is taken again")


def _check(settings: Settings) -> None:
    for name in ("idle_in_transaction_timeout", "statement_timeout"):
        timeout = getattr(settings, name)
        if timeout >= settings.session_timeout:
            raise DeclarationError(
                f"{name} ({timeout}) must be below session_timeout ({settings.session_timeout}): "
                "else the transaction of a worker that was stopped blocks its successor. Lower it, or leave it out."
            )
    if settings.lock_timeout >= settings.statement_timeout:
        raise DeclarationError(
            f"lock_timeout ({settings.lock_timeout}) must be below statement_timeout ({settings.statement_timeout}): "
            "else waiting for another worker looks like a statement that fails. Lower it, or leave it out."
        )


def _live(health: Health) -> tuple[bool, dict[str, Any]]:
    """A process that makes no progress wants to be started again; one without Kafka or database only waits."""
    return not health.stuck, {"stuck": [str(partition) for partition in health.stuck]}


def _ready(health: Health) -> tuple[bool, dict[str, Any]]:
    """A partition that is held back is not this process's fault: it is shown, and the process is ready."""
    lag = {f"{partition.topic}/{partition.number}": seen.lag for partition, seen in health.seen.items()}
    held_back = {f"{partition.topic}/{partition.number}": health.seen[partition].held_back for partition in health.held_back}
    return health.reachable and not health.stuck, {"kafka": health.reachable, "lag": lag, "held_back": held_back}

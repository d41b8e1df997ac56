"""What goes on beside the lanes of a process that publishes: the relay, and the duties that need its publisher or its presence."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from uuid import UUID

from consumer_idem.loop import Loop
from consumer_idem.outbox.health import OutboxHealth
from consumer_idem.outbox.limits import RecordLimits
from consumer_idem.outbox.relay import Relay
from consumer_idem.ports import Database, Listener, Publisher

_LOOK_AT_HEALTH = timedelta(minutes=1)
_FIRST_LOOK = timedelta(seconds=5)
"""By then this relay has its lease. Earlier the first thing that is told would be that there is none."""
_ASK_FOR_LIMITS = timedelta(seconds=30)
_DUTY_ENDS_WITHIN = 5.0


class Relaying:
    """A relay with its task, its publisher and its duties: looking at the outbox's health, and asking for the topics' limits.

    The database stays the caller's; the publisher is started, and closed, here.
    """

    def __init__(
        self, database: Database, publisher: Publisher, *, schema: str, owner: UUID, listener: Listener | None, limits: RecordLimits
    ) -> None:
        self._publisher = publisher
        self._relay = Relay(database, publisher, schema=schema, owner=owner, listener=listener)
        self._limits = limits
        # Every process looks, and one of them says what is alarming.
        self._alarms = OutboxHealth(database, schema=schema, tells=lambda: self._relay.first)
        self._duties = [
            Loop("outbox health", self._alarms.run_once, idle=_LOOK_AT_HEALTH, delay=_FIRST_LOOK),
            Loop("record limits", partial(limits.learn, publisher), idle=_ASK_FOR_LIMITS),
        ]
        limits.on_new = self._duties[-1].wake
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect the publisher and begin."""
        await self._publisher.start()
        self._publishing = asyncio.create_task(self._relay.loop.run())
        self._tasks = [asyncio.create_task(duty.run()) for duty in self._duties]

    def wake(self) -> None:
        """Say that there is something to publish."""
        self._relay.wake()

    async def stop(self) -> None:
        """Finish what is being sent, hand the shards over, close the publisher."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._publisher.close)
            undo.push_async_callback(self._relay.close)
            undo.push_async_callback(self._stop_publishing)
            await self._stop_duties()

    async def _stop_publishing(self) -> None:
        self._relay.loop.stop()
        if self._publishing is not None:
            await self._publishing

    async def _stop_duties(self) -> None:
        for duty in self._duties:
            duty.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_DUTY_ENDS_WITHIN)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

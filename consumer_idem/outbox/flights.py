"""What has been handed to the publisher and is not answered yet: one flight per topic, each in a task of its own."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from consumer_idem.failpoint import reached
from consumer_idem.outbox.entry import Entry
from consumer_idem.outbox.lane import Landing, Lane
from consumer_idem.outbox.window import Window
from consumer_idem.ports import Delivery, FailureKind, NotDelivered, Publisher

log = logging.getLogger(__name__)


class Flights:
    """Sends what the window lets go, and brings the answers back to it. `answered` is called when there is one to fetch."""

    def __init__(self, publisher: Publisher, window: Window, answered: Callable[[], None]) -> None:
        self._publisher = publisher
        self._window = window
        self._answered = answered
        self._tasks: dict[Lane, asyncio.Task[Sequence[Delivery]]] = {}

    def take_off(self) -> None:
        """Send whatever may go."""
        for lane in self._window.take_off(time.monotonic()):
            task = self._tasks[lane] = asyncio.ensure_future(self._publish(lane.flight))
            task.add_done_callback(self._ended)

    def land(self) -> Iterator[tuple[str, Landing]]:
        """Take the answers that have come; yield each topic with what became of its records."""
        for lane, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[lane]
                deliveries = _deliveries(task, len(lane.flight))
                yield lane.topic, self._window.land(lane, deliveries, time.monotonic())

    async def wait(self, patience: timedelta) -> None:
        """Wait for every answer, at most `patience`; then give up waiting. What is still sent later is a duplicate."""
        if not self._tasks:
            return
        _, pending = await asyncio.wait(self._tasks.values(), timeout=patience.total_seconds())
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Sequence[Delivery]]") -> None:
        if not task.cancelled():
            # `land` tells of it; after the end of a relay nobody does.
            task.exception()
        self._answered()

    async def _publish(self, entries: Sequence[Entry]) -> Sequence[Delivery]:
        await reached("relay.before_publish")
        deliveries = await self._publisher.publish([entry.record for entry in entries])
        await reached("relay.after_ack")
        return deliveries


def _deliveries(task: "asyncio.Task[Sequence[Delivery]]", count: int) -> Sequence[Delivery]:
    if task.cancelled():
        return [NotDelivered(FailureKind.RETRIABLE, "cancelled")] * count
    error = task.exception()
    if error is None:
        return task.result()
    log.error("publisher failed", exc_info=error)
    return [NotDelivered(FailureKind.RETRIABLE, f"{type(error).__name__}: {error}")] * count

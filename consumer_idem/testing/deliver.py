"""Deliver messages to an App's handlers without Kafka: once, again, and with a crash at a place of your choice."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from consumer_idem import failpoint
from consumer_idem.app import App
from consumer_idem.errors import ConsumerIdemError, DeclarationError
from consumer_idem.message import Header, Message
from consumer_idem.outcome import Outcome

Value = Mapping[str, Any] | bytes | None


class Crashed(ConsumerIdemError):
    """The worker crashed at the failpoint that `crash_at` named. Deliver again, as Kafka would."""


class Deliverer:
    """One consumer of an App, with a database of its own. Its messages get ascending offsets of partition 0.

    `await deliver(app, {"payment_id": "1"})` returns the outcomes; `redeliver()` hands in the same deliveries again, as after a
    lost offset; the same payload in another `deliver` is a copy that was published twice.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._next_offset = 0
        self._last: tuple[App, list[Message]] | None = None
        self._apps: list[App] = []

    async def deliver(
        self, app: App, *values: Value, topic: str | None = None, headers: Sequence[Header] = (), key: bytes | None = None
    ) -> list[Outcome]:
        """Deliver one message per value (a dict becomes JSON) to the App's handlers; raise Crashed inside `crash_at`."""
        chosen = topic or _only_topic(app)
        messages = [self._message(chosen, value, headers, key) for value in values]
        self._last = app, messages
        return await self._process(app, messages)

    async def redeliver(self) -> list[Outcome]:
        """Deliver what was delivered last once more: the same positions, as the broker does after a crash."""
        if self._last is None:
            raise LookupError("Nothing was delivered yet: call `await deliver(app, …)` first.")
        return await self._process(*self._last)

    async def close(self) -> None:
        """Close the database connections of every App that was used."""
        for app in self._apps:
            await app.close()

    async def _process(self, app: App, messages: list[Message]) -> list[Outcome]:
        app.runtime({"database": self._dsn})
        if app not in self._apps:
            self._apps.append(app)
        try:
            return await app.process(messages)
        except asyncio.CancelledError:
            if not _crashing:
                raise
            # What lived in the process's memory is gone; the next delivery begins with a new one.
            await app.close()
            raise Crashed(f"The worker crashed at {', '.join(_crashing)}.") from None

    def _message(self, topic: str, value: Value, headers: Sequence[Header], key: bytes | None) -> Message:
        encoded = json.dumps(value).encode() if isinstance(value, Mapping) else value
        self._next_offset += 1
        return Message(
            topic=topic,
            partition=0,
            offset=self._next_offset - 1,
            key=key,
            value=encoded,
            headers=tuple(headers),
            time=datetime.now(UTC),
        )


_crashing: set[str] = set()


@contextmanager
def crash_at(point: str, *, at: int = 1) -> Iterator[None]:
    """Let the worker crash inside this block when it reaches the failpoint `point` for the `at`-th time.

    Points, in order: begin.after, claim.after, handler.before, handlers.after, flush.after, settle.after, seal.after, commit.after,
    synchronizers.after. Up to seal.after nothing is committed; from commit.after on everything is. Another name is a ConsumerIdemError:
    a worker that never comes there would not crash, and the test would prove nothing.
    """
    if point not in failpoint.IN_BATCH:
        raise ConsumerIdemError(f"`deliver` comes to no failpoint {point!r}. It comes to {', '.join(failpoint.IN_BATCH)}.")
    failpoint.active.update(failpoint.parse(f"{point}=cancel@{at}"))
    _crashing.add(point)
    try:
        yield
    finally:
        _crashing.discard(point)
        failpoint.active.pop(point, None)


def _only_topic(app: App) -> str:
    topics = {handler.topic for handler in app.handlers}
    if len(topics) != 1:
        raise DeclarationError(f"This App reads {len(topics)} topics. Say which: deliver(app, …, topic=…).")
    return topics.pop()

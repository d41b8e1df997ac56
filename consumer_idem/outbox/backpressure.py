"""Whether consumption pauses because the relay does not keep up."""

import logging
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from consumer_idem.ports import Database, Row
from consumer_idem.sql import Queries
from consumer_idem.transaction.short import short

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackpressureLimits:
    """Consumption pauses when so many records wait, or one has waited so long; it resumes when both are below half."""

    depth: int = 100_000
    age: timedelta = timedelta(minutes=10)


class Waiting(NamedTuple):
    """What the relays could publish now, without parked records, those that they block, and those of held topics. Or a bound above it."""

    depth: int
    age: timedelta


class Backpressure:
    """Answers from memory and asks the database once per `interval`, so that every lane may ask before every poll."""

    def __init__(
        self,
        database: Database,
        *,
        schema: str = "idem",
        limits: BackpressureLimits | None = None,
        interval: timedelta = timedelta(seconds=1),
    ) -> None:
        self._database = database
        self._schema = schema
        self._sql = Queries("outbox", schema)
        self._limits = limits or BackpressureLimits()
        self._interval = interval.total_seconds()
        self._asked_at = float("-inf")
        self._paused = False

    async def paused(self) -> bool:
        """Tell whether to poll no messages now; raises DatabaseFailure if the database does not answer."""
        now = time.monotonic()
        if now - self._asked_at >= self._interval:
            self._asked_at = now
            await self._ask()
        return self._paused

    async def _ask(self) -> None:
        async with short(self._database, self._schema, script=self._sql["begin_read"]) as connection:
            (row,) = await connection.fetch(self._sql["at_most"])
            # Counting reads every record: only if that can make a difference.
            if self._too_much(_waiting(row)):
                (row,) = await connection.fetch(self._sql["depth"], self._limits.depth)
        self._decide(_waiting(row))

    def _too_much(self, waiting: Waiting) -> bool:
        most = self._limits
        share = 2 if self._paused else 1
        return waiting.depth >= most.depth / share or waiting.age >= most.age / share

    def _decide(self, waiting: Waiting) -> None:
        before, self._paused = self._paused, self._too_much(waiting)
        fields = {"depth": waiting.depth, "oldest_seconds": waiting.age.total_seconds()}
        if self._paused and not before:
            log.warning("consumption pauses: the outbox is too deep or too old", extra=fields)
        elif before and not self._paused:
            log.info("consumption resumes", extra=fields)


def _waiting(row: Row) -> Waiting:
    return Waiting(row["depth"], timedelta(seconds=row["age"]))

"""The relay: publishes what transactions have left in the outbox, in order per key, and forgets what is acknowledged.

Nothing is deleted before its own acknowledgement, and no record is sent before all earlier ones of its key are. So what
a crash, a stopped process or a lost answer can do is send again: never lose, and never put first what came later.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

from consumer_idem import telemetry
from consumer_idem.errors import CommitUnknown, DatabaseFailure
from consumer_idem.failpoint import reached
from consumer_idem.loop import Loop
from consumer_idem.outbox.backlog import Backlog
from consumer_idem.outbox.ear import Ear
from consumer_idem.outbox.entry import Entry, Unfit
from consumer_idem.outbox.flights import Flights
from consumer_idem.outbox.lease import Lease
from consumer_idem.outbox.nap import Nap
from consumer_idem.outbox.reader import Reader
from consumer_idem.outbox.window import Limits, Window
from consumer_idem.ports import Database, Listener, Publisher

log = logging.getLogger(__name__)

_SETTLE_EVERY = 0.02
"""Seconds between two deletions as long as there is little to delete: each costs a commit, and the next record waits for the disk."""
_MANY = 100
"""So many records are deleted at once: what is acknowledged and still there is sent again after a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """How a relay works.

    A relay that dies is replaced after `lease`. `poll` is the longest pause between two looks while no notification would
    end it, `rest` while one would. Every `full_look` it reads from the start of the table, whatever it remembers.
    """

    lease: timedelta = timedelta(seconds=10)
    poll: timedelta = timedelta(milliseconds=50)
    rest: timedelta = timedelta(seconds=1)
    full_look: timedelta = timedelta(seconds=10)
    limits: Limits = field(default_factory=Limits)


class Settled(NamedTuple):
    """What has been written down, and how many of the landed were there to be deleted."""

    landed: Sequence[Entry]
    unfit: Sequence[Unfit]
    deleted: int


class Relay:
    """One relay process's share of the work; any number of them run side by side.

    `loop` runs it. `database` and `publisher` stay the caller's to open and close; the listener is closed with the relay.
    """

    def __init__(
        self,
        database: Database,
        publisher: Publisher,
        *,
        schema: str = "idem",
        owner: UUID | None = None,
        listener: Listener | None = None,
        settings: RelaySettings | None = None,
    ) -> None:
        settings = settings or RelaySettings()
        self.owner = owner or uuid4()
        self.loop = Loop("relay", self.run_once, idle=settings.rest, max_backoff=timedelta(seconds=1))
        self._lease = Lease(database, schema, self.owner, settings.lease)
        self._ear = Ear(listener, schema, self.owner, settings.lease.total_seconds())
        self._nap = Nap(self._lease)
        self._window = Window(settings.limits)
        self._backlog = Backlog(database, schema, self.owner)
        self._reader = Reader(self._backlog, self._window, self._nap, settings.limits, (settings.poll, settings.rest, settings.full_look))
        self._flights = Flights(publisher, self._window, self.loop.wake)
        self._serving: frozenset[int] = frozenset()
        self._settling: asyncio.Task[Settled] | None = None
        self._settle_at = 0.0
        self._held: set[str] = set()
        self._holds: dict[str, str] = {}
        self._flowing: set[str] = set()
        self._turning = asyncio.Lock()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def first(self) -> bool:
        """Whether this relay has the first shard: of all that run, one has."""
        return 0 in self._serving

    def wake(self) -> None:
        """Look for records now: some were committed."""
        self._reader.look()
        self.loop.wake()

    async def run_once(self) -> int:
        """Do what can be done now without waiting for the broker; return how many records were acknowledged and deleted.

        Records in flight go on being sent between the calls, and their answers wake `loop`.
        """
        async with self._turning:
            if self._closed:
                return 0
            try:
                return await self._turn()
            except BaseException:
                self._distrust()
                raise

    async def close(self, patience: timedelta = timedelta(seconds=10)) -> None:
        """Send nothing more, wait up to `patience` for what is in flight, and hand the shards to the other relays."""
        self.loop.stop()
        async with self._turning:
            if self._closed:
                return
            self._closed = True
            self._set_timer(None)
            await self._ear.close()
            await self._flights.wait(patience)
            self._land()
            await self._hand_over()

    async def _hand_over(self) -> None:
        try:
            if self._settling is not None:
                self._forget(await self._settling)
            await self._write_down()
            await self._lease.retire()
        except (DatabaseFailure, CommitUnknown) as error:
            log.warning("shards could not be handed over; they are free when the lease ends", extra={"error": str(error)})

    # One turn

    async def _turn(self) -> int:
        await self._keep_shards()
        self._land()
        self._send()
        done = self._settle()
        if self._serving and not self._reader.due_in(time.monotonic()):
            await self._read()
        await self._reader.watch()
        self._set_timer(self._next_turn_in())
        return done

    async def _keep_shards(self) -> None:
        await self._ear.open(self.wake, self._hear_of_shards)
        if self._lease.due_in == 0:
            await self._lease.beat(ping=self._ear.exists)
        surplus = self._lease.surplus()
        serving = frozenset(self._lease.epochs) - surplus
        if serving != self._serving:
            self._serve(serving)
        if free := surplus - self._window.shards_in_use():
            await self._lease.release(free)

    def _serve(self, shards: frozenset[int]) -> None:
        log.info("relay serves other shards", extra={"owner": str(self.owner), "shards": len(shards), "before": len(self._serving)})
        if shards - self._serving:
            self._reader.start_over()
            self._nap.disturb()
        self._serving = shards
        self._window.keep(shards)

    def _land(self) -> None:
        for topic, landing in self._flights.land():
            if landing.acknowledged:
                telemetry.outbox("delivered", len(landing.acknowledged), topic)
            if landing.topic_error is not None:
                self._hold(topic, landing.topic_error)
            elif landing.acknowledged and self._window.flows(topic):
                log.info("topic takes records again", extra={"topic": topic})
                self._held.discard(topic)
                self._holds.pop(topic, None)
                self._flowing.add(topic)
            if landing.failed:
                log.warning("records wait", extra={"topic": topic, "records": len(landing.failed), "error": landing.error})
                self._window.keep(self._serving)

    def _send(self) -> None:
        if self._window.end_holds(time.monotonic()):
            self._reader.start_over()
        if self._lease.trusted:
            self._flights.take_off()

    def _settle(self) -> int:
        """Take note of what has been written down, and begin to write down what has landed since; return how many are deleted."""
        done = 0
        if self._settling is not None:
            if not self._settling.done():
                return 0
            settling, self._settling = self._settling, None
            done = self._forget(settling.result())
        if self._settle_in(time.monotonic()) == 0:
            self._settle_at = time.monotonic() + _SETTLE_EVERY
            self._settling = asyncio.ensure_future(self._write_down())
            self._settling.add_done_callback(self._written_down)
        return done

    def _settle_in(self, now: float) -> float | None:
        """Return in how many seconds something is to be written down; None if nothing, or if we are at it."""
        if self._settling is not None:
            return None
        landed = self._window.landed_count
        if landed >= _MANY or self._window.unfit or self._holds or self._flowing:
            return 0.0
        return max(0.0, self._settle_at - now) if landed else None

    def _forget(self, settled: Settled) -> int:
        # Never between a read and its admission: what is read may stand behind a record that was being parked.
        self._window.forget(settled.landed, settled.unfit)
        if settled.unfit or settled.deleted < len(settled.landed):
            # Reads passed over them as known; an operator, or a database that went back in time, may have made them pending again.
            self._reader.start_over()
        return len(settled.landed)

    async def _read(self) -> None:
        look = self._reader.admit(await self._reader.read(self._serving))
        self._send()
        await self._nap.note(look, sending=self._window.sending, can_hear=self._ear.hears)
        self._reader.pause(look)

    async def _write_down(self) -> Settled:
        landed, unfit, deleted = self._window.landed, self._window.unfit, 0
        if landed or unfit:
            deleted = await self._backlog.settle(landed, unfit, self._lease.epochs)
            await reached("relay.after_settle")
        for refused in unfit:
            log.error("record parked", extra=_described(refused))
            telemetry.outbox("parked", 1, refused.entry.record.topic)
        if self._holds:
            held = dict(self._holds)
            await self._backlog.hold(held)
            self._holds = {topic: error for topic, error in self._holds.items() if topic not in held}
        if self._flowing:
            flowing = set(self._flowing)
            await self._backlog.unhold(sorted(flowing))
            self._flowing -= flowing
        return Settled(landed, unfit, deleted)

    def _hold(self, topic: str, error: str) -> None:
        if topic not in self._held:
            log.error("topic held", extra={"topic": topic, "error": error})
        self._held.add(topic)
        telemetry.outbox("held", 1, topic)
        self._holds[topic] = error
        self._flowing.discard(topic)

    # What comes from outside the turns

    def _written_down(self, task: "asyncio.Task[object]") -> None:
        if not task.cancelled():
            # The next turn raises it; without one, nobody is to miss it.
            task.exception()
        self.loop.wake()

    def _hear_of_shards(self) -> None:
        self._lease.hurry()
        self.loop.wake()

    def _distrust(self) -> None:
        """Forget what memory says about the table; what is in flight stays known until it is answered."""
        self._window.keep(())
        self._serving = frozenset()
        self._lease.hurry()

    def _next_turn_in(self) -> float:
        now = time.monotonic()
        times = [self._lease.due_in, self._reader.due_in(now) if self._serving else None, self._window.next_due(now), self._settle_in(now)]
        return min(each for each in times if each is not None)

    def _set_timer(self, delay: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay is None else asyncio.get_running_loop().call_later(delay, self.loop.wake)


def _described(refused: Unfit) -> dict[str, object]:
    record = refused.entry.record
    return {"record": refused.entry.id, "message_id": str(record.id), "topic": record.topic, "key": record.key, "error": refused.error}

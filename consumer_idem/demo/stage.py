"""One run of the demo, step by step: prepare, start, consume, stop, judge."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from consumer_idem import schema
from consumer_idem.demo.broker import Broker
from consumer_idem.demo.check import Found, Verdict, judge
from consumer_idem.demo.crew import Crew, DemoFailed
from consumer_idem.demo.ledger import Ledger
from consumer_idem.demo.names import PARTITIONS
from consumer_idem.demo.services import Services
from consumer_idem.demo.telling import Teller
from consumer_idem.demo.workload import Workload, make_workload
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.testing.supervisor import Child, Supervisor

_LOOK = 0.02
_STUCK_AFTER = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may be chosen. `app` is what the workers run; a small batch lets the kill hit work that is under way."""

    messages: int = 5000
    seed: int = 1
    app: str = "consumer_idem.demo.payments:app"
    batch_size: int = 100
    keep: bool = False


class Stage:
    """Holds all that takes part."""

    def __init__(self, workload: Workload, services: Services, ledger: Ledger, broker: Broker, crew: Crew, teller: Teller) -> None:
        self.workload = workload
        self.services = services
        self.ledger = ledger
        self.killed_workers = 0
        self._broker = broker
        self._crew = crew
        self._teller = teller

    async def prepare(self) -> None:
        """Make topics, tables and accounts."""
        await asyncio.to_thread(self._broker.create_topics)
        database = AsyncpgDatabase(self.services.dsn)
        try:
            await schema.install(database, self.services.names.library)
        finally:
            await database.close()
        await self.ledger.create(self.workload.balances)

    async def start(self) -> Child:
        """Start two workers and the relay; return the one to be killed, once both hold partitions."""
        victim = await self._crew.start_worker("first worker")
        await self._crew.start_worker("second worker")
        await self._crew.start_relay()
        await self._until(self._both_hold_partitions)
        return victim

    async def _both_hold_partitions(self) -> bool:
        owners = await self.ledger.owners()
        return len(owners) == PARTITIONS and len(set(owners.values()) - {None}) > 1

    async def consume(self, victim: Child) -> None:
        """Send everything; kill the victim half-way and start it again; return when all is consumed and published."""
        ends = await asyncio.to_thread(self._broker.send, self.workload.requests)
        self._teller.say(f"{len(self.workload.requests)} messages sent")
        half = len(self.workload.payments) // 2
        await self._until(lambda: self._settled(half))
        await self._crew.kill(victim)
        self.killed_workers += 1
        self._teller.say(f"first worker killed with {await self.ledger.settled()} payments settled, and started again")
        await self._crew.start_worker("first worker")
        await self._until(lambda: self._consumed(ends))

    async def _settled(self, count: int) -> bool:
        settled = await self.ledger.settled()
        self._teller.advance(settled)
        return settled >= count

    async def _consumed(self, ends: dict[int, int]) -> bool:
        self._teller.advance(await self.ledger.settled())
        reached = await self.ledger.reached()
        return all(reached.get(partition, 0) >= end for partition, end in ends.items()) and not await self.ledger.waiting()

    async def stop(self) -> None:
        """End the workers and the relay in order."""
        await self._crew.stop()

    async def find(self) -> Found:
        """Look at what is there."""
        return Found(
            effects=await self.ledger.effects(),
            refusals=await self.ledger.refusals(),
            balances=await self.ledger.balances(),
            quarantine=await self.ledger.quarantined(),
            records=await self._broker.published(),
        )

    async def judge(self) -> tuple[Found, Verdict]:
        """Compare what is there with what was sent."""
        found = await self.find()
        return found, judge(self.workload, found)

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for `condition`; raise DemoFailed if nothing moves for a minute, or a process is gone."""
        seen: object = None
        moved_at = time.monotonic()
        while not await condition():
            self._crew.check()
            moving = (await self.ledger.owners(), await self.ledger.reached(), await self.ledger.waiting())
            if moving != seen:
                seen, moved_at = moving, time.monotonic()
            elif time.monotonic() - moved_at > _STUCK_AFTER:
                raise DemoFailed(f"Nothing moved for {_STUCK_AFTER:.0f} s. {self._crew.tails()}")
            await asyncio.sleep(_LOOK)


@asynccontextmanager
async def staged(options: Options, services: Services, teller: Teller) -> AsyncGenerator[Stage]:
    """Yield a stage; end its processes, whatever happens."""
    workload = make_workload(options.messages, options.seed)
    teller.expect(len(workload.payments))
    broker = Broker(services.kafka, services.names, replication=1 if services.small_broker else -1)
    async with AsyncExitStack() as undo:
        ledger = await undo.enter_async_context(Ledger.opened(services.dsn, services.names))
        if not services.own and not options.keep:
            undo.push_async_callback(_remove, ledger, broker)
        supervisor = await undo.enter_async_context(Supervisor())
        crew = Crew(supervisor, services, options.app, options.batch_size)
        yield Stage(workload, services, ledger, broker, crew, teller)


async def _remove(ledger: Ledger, broker: Broker) -> None:
    """Remove tables and topics from servers that stay."""
    await ledger.drop()
    await asyncio.to_thread(broker.delete_topics)

"""Relays that are killed over and over, a broker that restarts, and answers that get lost, under a steady stream of records."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import pytest
from confluent_kafka.admin import AdminClient

from consumer_idem.outbox.table import Outbox
from consumer_idem.testing import KafkaApi, LostKafka, TcpProxy
from consumer_idem.testing.services.kafka import KafkaBroker
from consumer_idem.testing.supervisor import Child, Supervisor
from consumer_idem.testing.waiting import eventually
from tests.conftest import Services, make_topic
from tests.outbox.scene import Published, read_topic, record
from tests.scenarios.resent import Incident, Life, causes, sendings

RELAYS = 3
PARTITIONS = 6
WRITERS = 4
KEYS = 200
BATCH = 200
BACKLOG = 6000
LEASE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to happen while the records are written."""

    records: int
    kills: int
    restarts: int
    lost_answers: int


class Lost(LostKafka):
    """Loses Produce answers, and knows when."""

    def __init__(self) -> None:
        super().__init__(KafkaApi.PRODUCE)
        self.incidents: list[Incident] = []

    def due(self) -> bool:
        """Tell whether this answer is to be lost."""
        due = super().due()
        if due:
            self.incidents.append(Incident(time.monotonic(), time.monotonic()))
        return due


@dataclass(slots=True)
class Relay:
    """A relay process and what is known of its life."""

    child: Child
    life: Life


@dataclass(slots=True)
class Soak:
    """One run. `folder` is where the relays write their journals."""

    plan: Plan
    dsn: str
    folder: Path
    broker: KafkaBroker
    supervisor: Supervisor
    proxy: TcpProxy
    lost: Lost
    dice: random.Random = field(default_factory=lambda: random.Random(4))
    relays: list[Relay] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    restarts: list[Incident] = field(default_factory=list)
    written: int = 0
    wanted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    async def run(self) -> None:
        """Write everything while things break, and wait until the outbox is empty."""
        for _ in range(RELAYS):
            await self._start_relay()
        watch = await asyncpg.connect(self.dsn)
        breaking = asyncio.create_task(self._break())
        await asyncio.gather(*(self._write(watch_dsn, number) for number, watch_dsn in enumerate([self.dsn] * WRITERS)))
        await breaking

        async def empty() -> bool:
            return not await watch.fetchval("SELECT count(*) FROM idem.outbox")

        await eventually(empty, timeout=120)
        await watch.close()
        for relay in self.relays:
            relay.child.terminate()
        assert [await relay.child.wait() for relay in self.relays] == [0] * RELAYS

    async def _start_relay(self) -> None:
        life = Life(self.folder / f"relay-{len(self.lives)}")
        env = {"RELAY_LEASE": str(LEASE), "RELAY_BATCH": str(BATCH), "RELAY_JOURNAL": str(life.path)}
        child = await self.supervisor.start("-m", "tests.programs.relay", self.dsn, self.proxy.bootstrap, env=env)
        await child.line("relay")
        self.relays.append(Relay(child, life))
        self.lives.append(life)

    async def _write(self, dsn: str, writer: int) -> None:
        """Add this writer's share; keys belong to one writer each, so that their order is that of the numbers."""
        connection, outbox = await asyncpg.connect(dsn), Outbox()
        numbers = iter(range(writer, self.plan.records, WRITERS))
        while batch := [number for _, number in zip(range(self.dice.randint(1, 60)), numbers, strict=False)]:
            while await connection.fetchval("SELECT coalesce(max(id) - min(id), 0) FROM idem.outbox") > BACKLOG:
                await asyncio.sleep(0.01)
            async with connection.transaction():
                keys = [f"{writer}-{self.dice.randrange(KEYS)}" for _ in batch]
                await outbox.add(connection, [record("soak", number, key=key) for number, key in zip(batch, keys, strict=True)])
            for number, key in zip(batch, keys, strict=True):
                self.wanted[key].append(number)
            self.written += len(batch)
        await connection.close()

    async def _break(self) -> None:
        """Kill and restart, evenly spread over the records."""
        events: list[Callable[[], Awaitable[None]]] = [self._kill] * self.plan.kills + [self._restart] * self.plan.restarts
        self.dice.shuffle(events)
        requests = self.plan.records // BATCH * PARTITIONS
        self.lost.arm(times=self.plan.lost_answers, every=max(2, requests // (3 * self.plan.lost_answers)))
        for place, event in enumerate(events, 1):
            due = self.plan.records * place // (len(events) + 1)
            await eventually(lambda due=due: self.written >= due, timeout=120)  # type: ignore[misc]
            await event()

    async def _kill(self) -> None:
        victim = self.relays.pop(self.dice.randrange(RELAYS))
        victim.life.killed_at = time.monotonic()
        await victim.child.kill9()
        await self._start_relay()

    async def _restart(self) -> None:
        began = time.monotonic()
        if self.dice.random() < 0.5:
            await asyncio.to_thread(self.broker.kill9)
            await asyncio.to_thread(self.broker.start)
        else:
            await asyncio.to_thread(self.broker.restart)
        self.restarts.append(Incident(began, time.monotonic()))


def _judge_order(soak: Soak, messages: list[Published]) -> None:
    """Assert that every record is there and each key's first occurrences are in order."""
    seen: set[int] = set()
    firsts: dict[str, list[int]] = defaultdict(list)
    for message in sorted(messages, key=lambda each: (each.partition, each.offset)):
        number = int(message.value or b"-1")
        if number not in seen:
            firsts[(message.key or b"").decode()].append(number)
        seen.add(number)
    assert soak.plan.records == len(seen)
    assert dict(soak.wanted) == dict(firsts)


def _judge_duplicates(soak: Soak, messages: list[Published]) -> dict[str, object]:
    """Assert that each message beyond a record's first goes back to a sending, and each sending again to what broke the one before.

    A lost answer alone doubles nothing: the producer asks again under the same number.
    """
    for life in soak.lives:
        life.read()
    sent = sendings(soak.lives)
    found = Counter(int(message.value or b"-1") for message in messages)
    why = causes(sent, [*soak.restarts, *soak.lost.incidents], LEASE)
    in_hand = [life.in_hand() for life in soak.lives if life.killed_at < float("inf")]
    figures = {"messages": len(messages), "twice": len(messages) - len(found), "sent again": dict(why), "in hand when killed": in_hand}
    assert {number: count for number, count in found.items() if count > len(sent[number])} == {}, figures
    assert why["unexplained"] == 0, figures
    assert why["killed"] <= sum(in_hand), figures
    return figures


async def _soak(dsn: str, services: Services, folder: Path, plan: Plan) -> None:
    broker = services.kafka()
    if not isinstance(broker, KafkaBroker):
        pytest.skip("the broker cannot be put behind a proxy")
    make_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), "soak", PARTITIONS, {})
    lost = Lost()
    started = time.monotonic()
    async with (
        Supervisor() as supervisor,
        TcpProxy(broker.proxied_address, port=broker.proxy_port, triggers=[lost]) as proxy,
    ):
        soak = Soak(plan, dsn, folder, broker, supervisor, proxy, lost)
        await soak.run()
        messages = await read_topic(broker.bootstrap, "soak")
    _judge_order(soak, messages)
    figures = _judge_duplicates(soak, messages)
    broken = {"kills": plan.kills, "broker restarts": plan.restarts, "lost answers": lost.fired}
    print({**figures, **broken, "seconds": round(time.monotonic() - started)})

    assert plan.lost_answers == lost.fired


async def test_a_short_soak(dsn: str, services: Services, tmp_path: Path) -> None:
    await _soak(dsn, services, tmp_path, Plan(records=6000, kills=3, restarts=1, lost_answers=6))


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_hundred_thousand_records_20_kills_3_broker_restarts_and_50_lost_answers(
    dsn: str, services: Services, tmp_path: Path
) -> None:
    await _soak(dsn, services, tmp_path, Plan(records=100_000, kills=20, restarts=3, lost_answers=50))

"""A world in one process, for schedules that real services would show once in a thousand hours.

The relay's own code runs on a model of its statements and of a broker. Every statement, every part of a flight and every
answer is a step, and a seeded scheduler picks whose step is next. It kills relays, freezes them past their lease, loses
answers of both sides, and lets transactions commit late.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest

from consumer_idem.errors import DatabaseFailure
from consumer_idem.message import OutboxRecord
from consumer_idem.outbox import flights, horizon, lease, reader, relay
from consumer_idem.outbox.lane import Backoff
from consumer_idem.outbox.relay import Relay, RelaySettings
from consumer_idem.outbox.shard import SHARDS, shard_of
from consumer_idem.outbox.window import Limits
from consumer_idem.ports import Delivered, Delivery, FailureKind, NotDelivered
from consumer_idem.sql import Queries

TOPICS = ("orders", "payments")
KEYS = (b"a", b"b", b"c", b"d", b"e", None)
PARTITIONS = 2
LEASE = 0.4
QUICK = Backoff(first=timedelta(milliseconds=20), most=timedelta(milliseconds=100))
SETTINGS = RelaySettings(
    lease=timedelta(seconds=LEASE),
    full_look=timedelta(seconds=60),
    limits=Limits(batch=3, queue=6, retry=QUICK, hold=QUICK),
)


@dataclass(slots=True)
class Row:
    id: int
    message_id: UUID
    topic: str
    key: bytes | None
    writer: str
    visible: bool = False
    state: str = "p"

    @property
    def shard(self) -> int:
        return shard_of(self.topic, self.key, self.message_id)


@dataclass(slots=True)
class World:
    """What exists outside the relays."""

    random: random.Random
    now: float = 0.0
    rows: dict[int, Row] = field(default_factory=dict)
    next_id: int = 1
    writing: set[str] = field(default_factory=set)
    locked: set[tuple[str, bytes | None]] = field(default_factory=set)
    members: dict[UUID, float] = field(default_factory=dict)
    owners: list[UUID | None] = field(default_factory=lambda: [None] * SHARDS)
    epochs: list[int] = field(default_factory=lambda: [0] * SHARDS)
    changes: int = 0
    takeovers: int = 0
    committed: list[Row] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    unfit: set[UUID] = field(default_factory=set)
    missing_topics: set[str] = field(default_factory=set)
    log: dict[tuple[str, int], list[UUID]] = field(default_factory=lambda: defaultdict(list))
    calm: bool = False
    waiting: dict[str, list[asyncio.Future[None]]] = field(default_factory=lambda: defaultdict(list))
    frozen: dict[str, float] = field(default_factory=dict)

    async def step(self, actor: str) -> None:
        """Wait until the scheduler lets the actor go on."""
        future = asyncio.get_running_loop().create_future()
        self.waiting[actor].append(future)
        await future

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability


class ModelConnection:
    """Runs the relay's named statements on the world."""

    fault = None
    raw = None

    def __init__(self, world: World, actor: str) -> None:
        self._world = world
        self._actor = actor
        sql = Queries("outbox", "idem")
        names = (
            "heartbeat",
            "bury",
            "take",
            "release",
            "retire",
            "announce",
            "idle",
            "read",
            "forget",
            "park",
            "hold",
            "unhold",
            "writers",
        )
        self._statements: Mapping[str, Callable[..., Any]] = {sql[name]: getattr(self, f"_{name}") for name in names}

    def in_transaction(self) -> bool:
        return True

    async def execute(self, sql: str, *args: Any) -> str:
        rows = await self.fetch(sql, *args)
        return f"DONE {len(rows)}"

    async def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        raise NotImplementedError

    async def fetch(self, sql: str, *args: Any) -> Sequence[Mapping[str, Any]]:
        await self._world.step(self._actor)
        if self._world.chance(0.004):
            raise DatabaseFailure("request lost")
        rows = self._statements[sql](*args)
        await self._world.step(self._actor)
        if self._world.chance(0.004):
            raise DatabaseFailure("answer lost")
        return rows or ()

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    # Leases

    def _heartbeat(self, owner: UUID, duration: timedelta, _ping: bool) -> None:
        self._world.members[owner] = self._world.now + duration.total_seconds()

    def _bury(self) -> None:
        for owner in [owner for owner, until in self._world.members.items() if until < self._world.now]:
            self._world.takeovers += owner in self._world.owners
            self._retire(owner)

    def _take(self, owner: UUID) -> list[dict[str, Any]]:
        world = self._world
        members = sorted(world.members)
        if owner not in members:
            return []
        share = SHARDS // len(members) + (members.index(owner) < SHARDS % len(members))
        for shard in [shard for shard, of in enumerate(world.owners) if of is None][: max(0, share - world.owners.count(owner))]:
            world.owners[shard] = owner
            world.epochs[shard] += 1
        held = [{"share": share, "shard": shard, "epoch": world.epochs[shard]} for shard, of in enumerate(world.owners) if of == owner]
        return held or [{"share": share, "shard": None, "epoch": None}]

    def _release(self, owner: UUID, shards: Sequence[int]) -> None:
        for shard in shards:
            if self._world.owners[shard] == owner:
                self._world.owners[shard] = None

    def _retire(self, owner: UUID) -> None:
        self._world.members.pop(owner, None)
        self._release(owner, range(SHARDS))

    def _announce(self) -> None: ...

    def _idle(self, owner: UUID, idle: bool) -> None: ...

    # Records

    def _read(self, above: int, change: int, shards: Sequence[int], without: Sequence[str], in_memory: str, *limits: int) -> Any:
        world, known = self._world, ids_of(in_memory)
        floor = above if change == world.changes else 0
        seen = [row for row in world.rows.values() if row.visible]
        parked = {(row.topic, row.key): row.id for row in reversed(seen) if row.state == "x" and row.key is not None}
        found = [
            {"change": world.changes, "headers": None, "source": "model", "type": None, "time": "", "value": None, **_columns(row)}
            for row in sorted(seen, key=lambda row: row.id)
            if row.state == "p" and row.id > floor and row.shard in shards and row.topic not in without and row.id not in known
            if parked.get((row.topic, row.key), row.id) >= row.id
        ]
        return found[: limits[0]] or [{"change": world.changes, "id": None}]

    def _forget(self, ids: str, message_ids: str, owner: UUID, epochs: Sequence[int]) -> list[dict[str, Any]]:
        rows = self._ours(ids, message_ids, owner, epochs)
        for row in rows:
            del self._world.rows[row.id]
        return [{"id": row.id} for row in rows]

    def _park(self, ids: str, message_ids: str, owner: UUID, epochs: Sequence[int], _: Sequence[str]) -> None:
        for row in self._ours(ids, message_ids, owner, epochs):
            row.state = "x"

    def _ours(self, ids: str, message_ids: str, owner: UUID, epochs: Sequence[int]) -> list[Row]:
        world = self._world
        rows = [world.rows[id] for id in ids_of(ids) if id in world.rows and str(world.rows[id].message_id) in message_ids]
        return [row for row in rows if world.owners[row.shard] == owner and world.epochs[row.shard] == epochs[row.shard]]

    def _hold(self, *_: Any) -> None: ...

    def _unhold(self, *_: Any) -> None: ...

    def _writers(self) -> list[dict[str, Any]]:
        return [{"server": 1, "last": self._world.next_id - 1, "writers": list(self._world.writing)}]


def _columns(row: Row) -> dict[str, Any]:
    return {"id": row.id, "message_id": row.message_id, "shard": row.shard, "topic": row.topic, "key": row.key}


def ids_of(array: str) -> list[int]:
    return [int(id) for id in array.strip("{}").split(",") if id]


class ModelDatabase:
    def __init__(self, world: World, actor: str) -> None:
        self._connection = ModelConnection(world, actor)

    async def open(self) -> None: ...

    async def begin(self, _: str) -> ModelConnection:
        return self._connection

    async def close(self) -> None: ...


class ModelPublisher:
    """A broker's partitions: each takes a prefix of what is sent, and the answer may be lost."""

    def __init__(self, world: World, actor: str) -> None:
        self._world = world
        self._actor = actor

    async def start(self) -> None: ...

    async def publish(self, records: Sequence[OutboxRecord]) -> Sequence[Delivery]:
        world = self._world
        if records[0].topic in world.missing_topics:
            await world.step(self._actor)
            return [NotDelivered(FailureKind.TOPIC, "missing")] * len(records)
        broken: set[int] = set()
        deliveries: list[Delivery] = []
        lost = world.chance(0.1)
        for record in records:
            if world.chance(0.3):
                await world.step(self._actor)
            deliveries.append(self._append(record, broken))
        await world.step(self._actor)
        return [NotDelivered(FailureKind.RETRIABLE, "answer lost")] * len(records) if lost else deliveries

    def _append(self, record: OutboxRecord, broken: set[int]) -> Delivery:
        partition = crc32(record.key or record.id.bytes) % PARTITIONS
        if partition not in broken and record.id in self._world.unfit:
            broken.add(partition)
            return NotDelivered(FailureKind.RECORD, "too large")
        if partition in broken or self._world.chance(0.1):
            broken.add(partition)
            return NotDelivered(FailureKind.RETRIABLE, "behind one that failed")
        log = self._world.log[record.topic, partition]
        log.append(record.id)
        return Delivered(partition, len(log))

    async def record_limit(self, _: str) -> None:
        return None

    async def close(self) -> None: ...


async def writer(world: World, name: str, transactions: int) -> None:
    """Adds records under a lock per key, as an application does that writes them beside a row that it has updated."""
    for number in range(transactions):
        free = [(topic, key) for topic in TOPICS for key in KEYS if (topic, key) not in world.locked or key is None]
        mine = world.random.sample(free, min(len(free), world.random.randint(1, 3)))
        world.locked.update(mine)
        await world.step(name)
        transaction = f"{name}/{number}"
        world.writing.add(transaction)
        added = []
        for topic, key in mine:
            added.append(Row(world.next_id, UUID(int=world.random.getrandbits(128)), topic, key, transaction))
            world.next_id += 1
            if world.chance(0.3):
                await world.step(name)
        # Some commit late.
        for _ in range(world.random.choice((1, 1, 2, 40))):
            await world.step(name)
        if not world.chance(0.1):
            for row in added:
                row.visible = True
                world.rows[row.id] = row
                world.committed.append(row)
                if world.chance(0.03):
                    world.unfit.add(row.message_id)
        world.locked.difference_update(mine)
        await world.step(name)
        world.writing.discard(transaction)


async def operator(world: World) -> None:
    """Retries what is parked, or drops it."""
    while True:
        await world.step("operator")
        for row in [row for row in world.rows.values() if row.state == "x"]:
            world.unfit.discard(row.message_id)
            world.changes += 1
            if world.random.random() < 0.3:
                world.dropped.add(row.id)
                del world.rows[row.id]
            else:
                row.state = "p"


class Simulation:
    """One schedule."""

    def __init__(self, seed: int) -> None:
        self.world = World(random.Random(seed))
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._born = 0

    async def run(self) -> None:
        """Run until everything is written, then in peace until everything is published."""
        world = self.world
        writers = [self._start(f"writer {number}", writer(world, f"writer {number}", 15)) for number in range(3)]
        self._start("operator", operator(world))
        for _ in range(world.random.randint(1, 3)):
            self._bear_relay()
        while not all(task.done() for task in writers):
            await self._act()
        world.calm, world.frozen = True, {}
        world.missing_topics.clear()
        for _ in range(20_000):
            if not world.rows:
                break
            await self._act()
        for task in self._tasks.values():
            task.cancel()
        for future in [future for futures in world.waiting.values() for future in futures]:
            future.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, name: str, work: Any) -> asyncio.Task[None]:
        task = self._tasks[name] = asyncio.ensure_future(work)
        return task

    def _bear_relay(self) -> None:
        self._born += 1
        name = f"relay {self._born}"
        made = Relay(
            ModelDatabase(self.world, name),
            ModelPublisher(self.world, name),
            owner=UUID(int=self.world.random.getrandbits(128)),
            settings=SETTINGS,
        )
        self._start(name, self._live(name, made))

    async def _live(self, name: str, made: Relay) -> None:
        while True:
            with suppress(DatabaseFailure):
                await made.run_once()
            await self.world.step(name)

    async def _act(self) -> None:
        world = self.world
        world.now += world.random.uniform(0, 0.01)
        self._break_something()
        ready = [name for name, futures in world.waiting.items() if futures and world.frozen.get(name, 0.0) <= world.now]
        if ready:
            # A relay's turn has many steps: it gets more of them, so that it reads often while transactions are open.
            weights = [4 if name.startswith("relay") else 1 for name in ready]
            (name,) = world.random.choices(ready, weights)
            futures = world.waiting[name]
            future = futures.pop(world.random.randrange(len(futures)))
            if not future.done():
                future.set_result(None)
        for _ in range(8):
            await asyncio.sleep(0)

    def _break_something(self) -> None:
        world = self.world
        relays = [name for name, task in self._tasks.items() if name.startswith("relay") and not task.done()]
        if relays and world.chance(0.004):
            # What it had handed to its client dies with it.
            victim = world.random.choice(relays)
            self._tasks[victim].cancel()
            world.frozen[victim] = float("inf")
            self._bear_relay()
        if relays and world.chance(0.008):
            world.frozen[world.random.choice(relays)] = world.now + LEASE * world.random.uniform(0.2, 3)
        if world.chance(0.003):
            world.missing_topics ^= {world.random.choice(TOPICS)}


def complaints(world: World) -> list[str]:
    """Return what is lost, and where a record came for the first time behind a later one of its key."""
    published = {id for log in world.log.values() for id in log}
    wanted = [row for row in world.committed if row.id not in world.dropped]
    said = [f"lost {row.id}" for row in wanted if row.message_id not in published]
    said += [f"never deleted {id}" for id in world.rows]
    place = {row.message_id: row for row in world.committed}
    for log in world.log.values():
        highest: dict[tuple[str, bytes | None], int] = defaultdict(int)
        seen: set[UUID] = set()
        for id in log:
            row = place[id]
            # What an operator has dropped may still come from a stopped relay, at any time.
            if id not in seen and row.key is not None and row.id not in world.dropped:
                if row.id < highest[row.topic, row.key]:
                    said.append(f"{row.id} of key {row.key!r} behind {highest[row.topic, row.key]}")
                highest[row.topic, row.key] = row.id
            seen.add(id)
    return said


class _Clock:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def monotonic(self) -> float:
        return self._simulation.world.now


async def schedule(seed: int, monkeypatch: pytest.MonkeyPatch, plant: Callable[[World], Awaitable[None] | None] | None = None) -> World:
    """Run the schedule of this seed; `plant` may break something first."""
    random.seed(seed)
    simulation = Simulation(seed)
    for module in (relay, lease, reader, flights):
        monkeypatch.setattr(module, "time", _Clock(simulation))
    monkeypatch.setattr(horizon, "_STEP", 1)
    if plant is not None:
        plant(simulation.world)
    await simulation.run()
    return simulation.world

"""The command `relay`: rows a second against a bare loop, and how long a record takes from its commit to Kafka's acknowledgement."""

import asyncio
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import Any

import asyncpg

from consumer_idem.kafka.aiokafka_publisher import AiokafkaPublisher
from consumer_idem.message import OutboxRecord
from consumer_idem.outbox.record import PendingRecord
from consumer_idem.outbox.relay import Relay
from consumer_idem.outbox.table import Outbox
from consumer_idem.ports import Delivery
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.postgres.listen import AsyncpgListener
from tests.bench.contest import Plan
from tests.bench.job import Job
from tests.bench.measure import Failed, Run, cpu, end
from tests.bench.results import load_before, machine, now, rounded, versions
from tests.bench.rounds import Measure, described, ratios, take_turns, tell
from tests.bench.stage import Stage

ROWS = 200_000
PER_TRANSACTION = 5_000
PARTITIONS = 8
CLIENTS = ("aiokafka", "confluent")
RATES = (20, 200)
SECONDS = 15
DEAD_ROWS = 1_000_000
WITHIN = 300.0

VALUE = b"x" * 120
MAKE_DEAD = """
INSERT INTO idem.outbox (message_id, shard, topic, key, value, source)
SELECT gen_random_uuid(), n % 64, 'nowhere', 'k', convert_to(repeat('x', 120), 'UTF8'), 'bench' FROM generate_series(1, $1::int) AS n
"""


async def measure(plan: Plan) -> dict[str, Any]:
    """Return the section of the results."""
    began, load = now(), load_before()
    async with Stage() as stage:
        rates = await _throughput(stage, plan)
        latency = {
            "empty table": [await _latency(stage, rate, dead=0, seconds=SECONDS * plan.share) for rate in RATES],
            "a million dead rows": [
                await _latency(stage, rate, dead=int(DEAD_ROWS * plan.share), seconds=SECONDS * plan.share) for rate in RATES
            ],
        }
    section = {"machine": machine(), "versions": versions(), "began": began, "load_before": load, "rounds": plan.rounds}
    return {"relay": {**section, "throughput": rates, "latency_ms": latency}}


# Rows a second


async def _throughput(stage: Stage, plan: Plan) -> dict[str, Any]:
    rows = int(ROWS * plan.share)
    runners: dict[str, Measure] = {}
    for client in CLIENTS:
        runners[f"bare_{client}"] = partial(_drain, stage, "tests.bench.contestants.bare_relay", client, rows)
        runners[f"relay_{client}"] = partial(_drain, stage, "tests.bench.contestants.relay", client, rows)
    tallies = await take_turns({name: runner for name, runner in runners.items() if plan.wants(name)}, plan.rounds)
    found: dict[str, Any] = {"contestants": described(tallies), "of_bare": {}}
    for client in CLIENTS:
        if f"relay_{client}" in tallies and f"bare_{client}" in tallies:
            figure = ratios(tallies, f"bare_{client}").get(f"relay_{client}")
            if figure is not None:
                found["of_bare"][f"relay_{client}"] = rounded([figure.median, figure.least, figure.most])
    return found


async def _drain(stage: Stage, module: str, client: str, rows: int) -> Run:
    """Fill an outbox and let one program empty it: from the moment it runs until every row is in Kafka and out of the table."""
    topic, database = stage.empty_topic(PARTITIONS), await stage.database()
    dsn = stage.postgres.dsn(database)
    job = Job(dsn=dsn, bootstrap=stage.broker.bootstrap, topic=topic, group="", partitions=PARTITIONS, options={"client": client})
    connection = await asyncpg.connect(dsn)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, env=job.environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        # A record of its own shows that it is at work; what is measured comes after.
        await _fill(connection, topic, 1)
        await _emptied(stage, connection, topic, 1)
        before = cpu(process.pid), cpu(stage.postgres.pid)
        began = await _fill(connection, topic, rows)
        await _emptied(stage, connection, topic, rows + 1)
        ended, after = time.monotonic(), (cpu(process.pid), cpu(stage.postgres.pid))
        wrong = await _wrong(stage, topic, rows + 1)
    finally:
        await end(process)
        await connection.close()
        await stage.drop(database)
    return Run(
        messages=rows, seconds=ended - began, worker_cpu=after[0] - before[0], database_cpu=after[1] - before[1], memory=0, wrong=wrong
    )


async def _fill(connection: asyncpg.Connection, topic: str, rows: int) -> float:
    """Add so many records in one transaction; return the moment of its commit."""
    outbox = Outbox()
    async with connection.transaction():
        for start in range(0, rows, PER_TRANSACTION):
            numbers = range(start, min(start + PER_TRANSACTION, rows))
            records = [PendingRecord(topic=topic, key=b"account-%04d" % (number % 1000), value=VALUE, source="bench") for number in numbers]
            await outbox.add(connection, records)
    return time.monotonic()


async def _emptied(stage: Stage, connection: asyncpg.Connection, topic: str, wanted: int) -> None:
    until = time.monotonic() + WITHIN
    while await asyncio.to_thread(stage.size, topic, PARTITIONS) < wanted or await connection.fetchval(
        "SELECT EXISTS (SELECT FROM idem.outbox)"
    ):
        if time.monotonic() > until:
            raise Failed("It did not get done.")
        await asyncio.sleep(0.02)


async def _wrong(stage: Stage, topic: str, wanted: int) -> list[str]:
    size = await asyncio.to_thread(stage.size, topic, PARTITIONS)
    return [] if size == wanted else [f"{size} records in Kafka instead of {wanted}"]


# From the commit to the acknowledgement


@dataclass(slots=True)
class Noting:
    """A publisher that notes when each record was acknowledged."""

    inner: AiokafkaPublisher
    acknowledged: dict[uuid.UUID, float]

    async def publish(self, records: Sequence[OutboxRecord]) -> Sequence[Delivery]:
        """Publish and note."""
        deliveries = await self.inner.publish(records)
        moment = time.monotonic()
        for record in records:
            self.acknowledged[record.id] = moment
        return deliveries

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def _latency(stage: Stage, rate: int, *, dead: int, seconds: float) -> dict[str, Any]:
    """Commit one record at a time and compare with producing one at a time, at the same rate on the same broker."""
    topic, database = stage.empty_topic(PARTITIONS), await stage.database()
    dsn = stage.postgres.dsn(database)
    connection = await asyncpg.connect(dsn)
    if dead:
        await _make_dead(connection, dead)
    publisher = AiokafkaPublisher(stage.broker.bootstrap)
    await publisher.start()
    direct = await _direct(publisher, topic, rate, seconds)
    noting = Noting(publisher, {})
    pool = AsyncpgDatabase(dsn)
    relay = Relay(pool, noting, listener=AsyncpgListener(dsn))
    running = asyncio.create_task(relay.loop.run())
    try:
        committed = await _commit(connection, topic, rate, seconds)
        until = time.monotonic() + WITHIN
        while len(noting.acknowledged) < len(committed) and time.monotonic() < until:
            await asyncio.sleep(0.05)
    finally:
        relay.loop.stop()
        await running
        await relay.close()
        await publisher.close()
        await pool.close()
        await connection.close()
        await stage.drop(database)
    # The first ones find the relay without its shards.
    ours = [noting.acknowledged[id] - moment for id, moment in list(committed.items())[rate * 2 :]]
    result = {
        "rate": rate,
        "dead_rows": dead,
        "relay": _spread(ours),
        "direct": _spread(direct),
        "times": round(median(ours) / median(direct), 2),
    }
    tell(f"latency: {result}")
    return result


async def _make_dead(connection: asyncpg.Connection, rows: int) -> None:
    await connection.execute("ALTER TABLE idem.outbox SET (autovacuum_enabled = false)")
    async with connection.transaction():
        await connection.execute(MAKE_DEAD, rows)
    await connection.execute("DELETE FROM idem.outbox")


async def _direct(publisher: AiokafkaPublisher, topic: str, rate: int, seconds: float) -> list[float]:
    took: list[float] = []

    async def one(number: int) -> None:
        began = time.monotonic()
        await publisher.publish([OutboxRecord(id=uuid.uuid4(), topic=topic, key=b"account-%04d" % (number % 1000), value=VALUE)])
        took.append(time.monotonic() - began)

    tasks = [asyncio.create_task(one(number)) async for number in _beats(rate, seconds)]
    await asyncio.gather(*tasks)
    return took[rate:]


async def _commit(connection: asyncpg.Connection, topic: str, rate: int, seconds: float) -> dict[uuid.UUID, float]:
    outbox, committed = Outbox(), {}
    async for number in _beats(rate, seconds + 2):
        record = PendingRecord(topic=topic, key=b"account-%04d" % (number % 1000), value=VALUE, source="bench")
        async with connection.transaction():
            await outbox.add(connection, record)
        committed[record.message_id] = time.monotonic()
    return committed


async def _beats(rate: int, seconds: float) -> Any:
    """Yield a number at each beat of `rate` a second."""
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield number


def _spread(values: Sequence[float]) -> dict[str, float]:
    hundredths = quantiles(values, n=100)
    return {"median": round(1e3 * median(values), 2), "p95": round(1e3 * hundredths[94], 2), "p99": round(1e3 * hundredths[98], 2)}

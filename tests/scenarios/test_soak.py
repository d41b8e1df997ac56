"""Kills, stops and lost commits under load, on a ledger without a unique index: nothing lost, nothing doubled."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from consumer_idem.testing.lost import LostCommit
from consumer_idem.testing.supervisor import Child
from tests.proxied import through
from tests.scenarios.conftest import Stage

SESSION = 3


@dataclass(frozen=True)
class Storm:
    """How much of what is done to three workers."""

    lost_commits: int
    kills: int
    stops: int
    rate: int


async def feed(stage: Stage, storm: Storm, over: asyncio.Event) -> set[str]:
    """Produce until the storm is over: one message in five is a copy, half of the copies on another partition."""
    chance, ids, number = random.Random(4711), [], 0
    while not over.is_set():
        values = []
        for _ in range(storm.rate // 5):
            copied = ids and chance.random() < 0.2
            values.append({"payment_id": chance.choice(ids) if copied else f"p{number}"})
            if not copied:
                ids.append(f"p{number}")
                number += 1
        await asyncio.to_thread(stage.produce, values, partition=lambda _: chance.randrange(stage.partitions))
        stage.env["PRODUCED"] = str(int(stage.env.get("PRODUCED", "0")) + len(values))
        await asyncio.sleep(0.2)
    return set(ids)


async def kill(stage: Stage, workers: list[Child], times: int, chance: random.Random) -> None:
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        victim = workers.pop(chance.randrange(len(workers)))
        await victim.kill9()
        workers.append(await stage.worker())


async def stop(workers: list[Child], times: int, chance: random.Random) -> None:
    for _ in range(times):
        # Out of the list while it stands, so that it is not killed as well.
        victim = workers.pop(chance.randrange(len(workers)))
        await victim.stop()
        await asyncio.sleep(SESSION * 1.5)
        victim.go_on()
        workers.append(victim)
        await asyncio.sleep(chance.uniform(0.2, 1))


async def survive(stage: Stage, storm: Storm) -> str:
    chance, over, trigger = random.Random(1), asyncio.Event(), LostCommit("answer")
    proxy, address = through(stage.dsn, trigger)
    async with proxy:
        stage.env |= {"CONSUMER_IDEM_DATABASE": address, "CONSUMER_IDEM_BATCH_SIZE": "50", "HANDLER": "awaiting"}
        workers = [await stage.worker() for _ in range(3)]
        feeding = asyncio.create_task(feed(stage, storm, over))
        trigger.arm(10**9, every=7)
        await asyncio.gather(kill(stage, workers, storm.kills, chance), stop(workers, storm.stops, chance))
        async with asyncio.timeout(600):
            await trigger.until_fired(storm.lost_commits)
        over.set()
        ids = await feeding
        trigger.disarm()
        await stage.until_consumed(int(stage.env["PRODUCED"]), timeout=300)
    effects = Counter(await stage.effects())
    lost, doubled = ids - effects.keys(), {id for id, times in effects.items() if times > 1}
    quarantined = await stage.rows('SELECT message_id, reason, error, attempts, partition, "offset" FROM idem.quarantine')
    assert (lost, doubled, quarantined) == (set(), set(), [])
    assert await stage.rows("SELECT count(*) FROM idem.outbox") == [len(ids)]
    return (
        f"{stage.env['PRODUCED']} messages, {len(ids)} payments, {trigger.fired} commits lost, {storm.kills} kills, "
        f"{storm.stops} stops: {len(lost)} lost, {len(doubled)} doubled"
    )


@pytest.mark.timeout(300)
async def test_b10_a3_g2_a_short_storm_loses_and_doubles_nothing(stage: Stage):
    print(await survive(stage, Storm(lost_commits=15, kills=3, stops=1, rate=200)))


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("client", ["aiokafka", "confluent"])
async def test_b10_a3_g2_a_long_storm_loses_and_doubles_nothing(stage: Stage, client: str):
    stage.client = client
    print(await survive(stage, Storm(lost_commits=200, kills=30, stops=8, rate=500)))

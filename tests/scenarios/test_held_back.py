"""A producer's transaction that stays open, and what is no message at the end of a log: how a whole worker looks meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest
from confluent_kafka import Producer

from consumer_idem import runtime
from consumer_idem.app import App
from consumer_idem.consumer.health import Health
from consumer_idem.testing.services.ports import free_port
from tests.shop import TABLES, PaymentRequested, checkout

PATIENCE = timedelta(seconds=1)


class Run:
    """A worker in this process with a health port, and a producer with a transaction."""

    def __init__(self, app: App, settings: dict[str, Any], topic: str) -> None:
        self._runtime = app.runtime(settings)
        self._port = settings["health_port"]
        self._stop = asyncio.Event()
        self.producer = Producer({"bootstrap.servers": settings["kafka"], "transactional.id": topic})
        self.topic = topic

    async def start(self) -> None:
        await asyncio.to_thread(self.producer.init_transactions, 30)
        work = self._runtime.run(self._stop, relay=False, first_start="earliest", new_scope=False)
        self._task = asyncio.create_task(work)

    async def stop(self) -> None:
        self._stop.set()
        await self._task

    def write(self, *ids: str) -> None:
        self.producer.begin_transaction()
        for id in ids:
            self.producer.produce(self.topic, json.dumps({"payment_id": id}).encode())
        self.producer.flush(10)

    async def ready(self) -> dict[str, Any]:
        """Ask `/ready`; nothing is known before the port is open."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return {}
        writer.write(b"GET /ready HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return {"status": int(head.split()[1]), **json.loads(body)}

    async def shows(self, **wanted: Any) -> dict[str, Any]:
        """Wait until `/ready` shows these."""
        async with asyncio.timeout(30):
            while not wanted.items() <= (shown := await self.ready()).items():
                assert not self._task.done(), await self._task
                await asyncio.sleep(0.05)
        return shown


@pytest.fixture(params=["aiokafka", "confluent"])
async def run(request: pytest.FixtureRequest, dsn: str, kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    """A worker that looks often and has little patience."""
    monkeypatch.setattr(runtime, "Health", partial(Health, patience=PATIENCE))
    monkeypatch.setattr(runtime, "_LOOK", timedelta(milliseconds=100))
    name = topic()
    app = App(group="shop")

    @app.handler(name, source=checkout(), name="apply-payment")
    async def apply(request: PaymentRequested, tx: Any) -> None:
        await tx.execute("INSERT INTO payment VALUES ($1, $2, $3)", request.payment_id, request.account, request.amount)

    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    await connection.close()
    made = Run(app, {"database": dsn, "kafka": kafka, "client": request.param, "health_port": free_port()}, name)
    await made.start()
    yield made
    await made.stop()


async def test_a_hanging_transaction_is_named_until_it_ends_and_nobody_joins_anew(run: Run, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "consumer_idem")
    run.write("p0", "p1")
    run.producer.commit_transaction(10)
    where = f"{run.topic}/0"
    await run.shows(lag={where: 0}, held_back={})
    run.write("p2", "p3", "p4")
    hanging = await run.shows(held_back={where: 3})
    run.producer.commit_transaction(10)
    ended = await run.shows(lag={where: 0}, held_back={})

    assert (hanging["status"], hanging["lag"], ended["status"]) == (200, {where: 0}, 200)
    told = [(record.levelname, record.message) for record in caplog.records if record.name == "consumer_idem.consumer.health"]
    assert told == [
        ("ERROR", "an open transaction of a producer holds the partition back"),
        ("INFO", "the partition is held back no more"),
    ]
    (named,) = [record for record in caplog.records if hasattr(record, "last_stable_offset")]
    assert (named.last_stable_offset, named.high_watermark) == (3, 6)
    assert f"--topic {run.topic} --partition 0 --start-offset 3" in named.do
    assert [record.message for record in caplog.records].count("partition assigned") == 1


async def test_a_worker_at_the_end_of_what_is_no_message_is_not_stuck(run: Run, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "consumer_idem")
    run.write("p0", "p1")
    run.producer.commit_transaction(10)
    run.write("p2")
    run.producer.abort_transaction(10)
    where = f"{run.topic}/0"
    await run.shows(lag={where: 0})
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < began + 2 * PATIENCE.total_seconds():
        assert (await run.ready()).get("status") == 200
        await asyncio.sleep(0.05)

    assert [record.message for record in caplog.records].count("partition assigned") == 1

"""Worker processes on real PostgreSQL and real Kafka."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from consumer_idem.testing.supervisor import Child, Supervisor
from tests.shop import TABLES

_OPEN = """
SELECT pid, state, wait_event, clock_timestamp() - xact_start, left(query, 60) FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()
"""


@dataclass
class Stage:
    """A topic, a database, and workers that come and go."""

    dsn: str
    kafka: str
    topic: str
    supervisor: Supervisor
    partitions: int
    client: str = "aiokafka"
    env: dict[str, str] = field(default_factory=dict)
    connection: asyncpg.Connection | None = None
    workers: list[Child] = field(default_factory=list)

    async def worker(self, **env: str) -> Child:
        """Start a worker; keyword arguments are its environment."""
        settings = {
            "CONSUMER_IDEM_DATABASE": self.dsn,
            "CONSUMER_IDEM_KAFKA": self.kafka,
            "CONSUMER_IDEM_CLIENT": self.client,
            "CONSUMER_IDEM_SESSION_TIMEOUT": "3",
            "CONSUMER_IDEM_DRAIN_TIMEOUT": "3",
            "CONSUMER_IDEM_ENABLE_FAILPOINTS": "1",
            "TOPIC": self.topic,
            **self.env,
            **env,
        }
        self.workers.append(await self.supervisor.start("-m", "tests.programs.worker", env=settings))
        return self.workers[-1]

    def produce(self, payments: Sequence[dict[str, Any] | bytes | None], *, partition: Callable[[int], int] | None = None) -> None:
        """Produce payment requests, by default over the partitions in turn."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.kafka, "enable.idempotence": True, "linger.ms": 5})
        for number, value in enumerate(payments):
            where = partition(number) if partition else number % self.partitions
            encoded = value if isinstance(value, bytes | None) else json.dumps(value).encode()
            producer.produce(self.topic, value=encoded, partition=where, key=str(where).encode())
            producer.poll(0)
        assert producer.flush(30) == 0

    async def rows(self, sql: str, *args: Any) -> list[Any]:
        """Run SQL on the test's own connection."""
        if self.connection is None or self.connection.is_closed():
            self.connection = await asyncpg.connect(self.dsn)
        rows = await self.connection.fetch(sql, *args)
        return [row[0] if len(row) == 1 else tuple(row) for row in rows]

    async def until(self, sql: str, wanted: Any, *, timeout: float = 60) -> None:
        """Wait until the single value of a query is the wanted one."""
        try:
            async with asyncio.timeout(timeout):
                while (found := await self.rows(sql)) != [wanted]:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            open_now = await self.rows(_OPEN)
            pytest.fail(
                f"{open_now}\n{sql} gives {found}, not {wanted}. The last worker said:\n{self.workers[-1].tail() if self.workers else ''}"
            )

    async def until_consumed(self, count: int, *, timeout: float = 60) -> None:
        """Wait until the progress of all partitions adds up to `count` messages."""
        await self.until("SELECT COALESCE(sum(next_offset - first_offset), 0)::int FROM idem.progress", count, timeout=timeout)

    async def effects(self) -> list[str]:
        """The ids of the payments that took effect, sorted; twice if twice."""
        return await self.rows("SELECT id FROM payment ORDER BY id")


@pytest.fixture
async def stage(dsn: str, kafka: str, topic: Any) -> AsyncIterator[Stage]:
    """A stage with a topic of four partitions."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    async with Supervisor() as supervisor:
        made = Stage(dsn, kafka, topic(4), supervisor, 4, connection=connection)
        yield made
    if made.connection is not None:
        await made.connection.close()

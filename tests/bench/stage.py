"""Where everybody runs: one PostgreSQL as a user would have it, one broker, a fresh database for every run."""

import asyncio
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

import asyncpg
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from consumer_idem import sql
from consumer_idem.testing.services.kafka import KafkaBroker
from consumer_idem.testing.services.ports import Address, free_port
from consumer_idem.testing.services.postgres import PostgresServer
from consumer_idem.testing.services.small_broker import SmallBroker
from tests.bench.work import FILL_ACCOUNTS, TABLES, Work, values

SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
"""For everybody alike: enough memory, and no checkpoint in the middle of somebody's run. All else is PostgreSQL's default, fsync=on."""
TEMPLATE = "bench_template"
MOST_IN_FLIGHT = 50_000
"""Below what the producer's queue takes."""


class Stage:
    """The servers of one run of the benchmark; they end with it."""

    def __init__(self, *, small_broker: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self.postgres = PostgresServer(fsync=True, settings={**SETTINGS, **(settings or {})})
        self.broker = SmallBroker() if small_broker else KafkaBroker()
        self._undo = ExitStack()
        self._topics: dict[tuple[Work, int], str] = {}
        self._ends: dict[str, list[int]] = {}
        self._proxy: Address | None = None

    async def __aenter__(self) -> Self:
        self._undo.enter_context(self.postgres)
        self._undo.enter_context(self.broker)
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        self.server = await asyncpg.connect(self.postgres.dsn())
        await self._make_template()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()
        self._undo.close()

    async def _make_template(self) -> None:
        await self.server.execute(f"CREATE DATABASE {TEMPLATE}")
        connection = await asyncpg.connect(self.postgres.dsn(TEMPLATE))
        for script in (*sql.migrations("idem").values(), TABLES, FILL_ACCOUNTS):
            await connection.execute(script)
        await connection.close()

    async def database(self) -> str:
        """Make a fresh database with everybody's tables; return its name."""
        name = f"bench_{uuid.uuid4().hex[:12]}"
        await self.server.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        await self.server.execute("CHECKPOINT")
        return name

    async def far_dsn(self, database: str, round_trip: float) -> str:
        """Return the way to a database over a network on which a round trip takes so many milliseconds longer."""
        if self._proxy is None:
            self._proxy = await self._start_proxy(round_trip / 2)
        return self.postgres.dsn(database, via=self._proxy)

    async def _start_proxy(self, latency: float) -> Address:
        host, port = self.postgres.address
        ours = free_port()
        options = ["--listen", str(ours), "--latency-ms", str(latency)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "consumer_idem.testing.proxy", f"{host}:{port}", *options, stdout=asyncio.subprocess.PIPE
        )
        self._undo.callback(process.kill)
        assert process.stdout is not None
        await process.stdout.readline()
        return (host, ours)

    async def drop(self, name: str) -> None:
        """Drop a database."""
        await self.server.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def topic(self, work: Work, partitions: int = 8) -> str:
        """Return the topic that holds the messages of `work`; it is filled at the first call."""
        if (work, partitions) not in self._topics:
            self._topics[work, partitions] = self.new_topic(work, partitions)
        return self._topics[work, partitions]

    def new_topic(self, work: Work, partitions: int = 8) -> str:
        """Make a topic of its own and fill it with the messages of `work`."""
        name = self.empty_topic(partitions)
        self.produce(name, work)
        return name

    def empty_topic(self, partitions: int, name: str | None = None) -> str:
        """Make a topic, by default with a name of its own."""
        name = name or f"bench-{uuid.uuid4().hex[:12]}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        self._ends[name] = [0] * partitions
        return name

    def produce(self, topic: str, work: Work) -> None:
        """Produce the messages of `work`, in order."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 20, "partitioner": "murmur2_random", "acks": "all"})
        ends = self._ends[topic]

        def written(error: Any, message: Any) -> None:
            assert error is None, error
            ends[message.partition()] = max(ends[message.partition()], message.offset() + 1)

        for key, value in values(list(work.payments())):
            while len(producer) >= MOST_IN_FLIGHT:
                producer.poll(0.1)
            producer.produce(topic, key=key.encode(), value=value, on_delivery=written)
            producer.poll(0)
        assert producer.flush(60) == 0

    def lag(self, group: str, topic: str, ends: Sequence[int]) -> int:
        """Return how many messages are not covered by the group's committed offsets."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(len(ends))])
        answer = self.admin.list_consumer_group_offsets([asked], request_timeout=10)[group].result()
        return sum(ends) - sum(max(0, found.offset) for found in answer.topic_partitions)

    def until_members(self, group: str, count: int) -> None:
        """Wait until a group is stable with so many members, each with a partition."""
        end = time.monotonic() + 60
        while True:
            found = self.admin.describe_consumer_groups([group], request_timeout=10)[group].result()
            if (
                found.state == ConsumerGroupState.STABLE
                and sum(bool(member.assignment.topic_partitions) for member in found.members) == count
            ):
                return
            assert time.monotonic() < end, f"The group has {len(found.members)} members instead of {count}."
            time.sleep(0.1)

    def ends(self, topic: str) -> list[int]:
        """Return the end offset of every partition, as the producer was told."""
        return list(self._ends[topic])

    def size(self, topic: str, partitions: int) -> int:
        """Return how many records a topic holds."""
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        return sum(answer.result().offset for answer in self.admin.list_offsets(asked, request_timeout=10).values())

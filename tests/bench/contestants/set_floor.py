"""The floor: the best set-based batch that we can write by hand, for this effect and nothing else.

The same validation, key and fingerprint as ours, the same inbox columns that matter, partitions side by side; but no seal, no fence,
no quarantine, no retry: what fails stops it.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from pydantic_core import to_json

from consumer_idem.inbox.source import Reading
from consumer_idem.message import Message
from tests.bench.contestants.loop import assigned_consumer
from tests.bench.job import Job, first_poll, start
from tests.bench.work import OUT, PaymentRequested, checkout, record_value

BATCH = 500
COMMIT_EVERY = timedelta(milliseconds=200)

CLAIM = """
INSERT INTO processed (id, fingerprint) SELECT * FROM unnest($1::text[], $2::bytea[]) AS seen (id, fingerprint) ORDER BY id
ON CONFLICT DO NOTHING RETURNING id
"""
SEEN = "SELECT id, fingerprint FROM processed WHERE id = ANY ($1::text[])"
APPLY = """
WITH paid AS (
    INSERT INTO payment (id, account, amount) SELECT * FROM unnest($1::text[], $2::text[], $3::numeric[])
), booked AS (
    UPDATE account SET balance = balance + asked.amount
    FROM (SELECT account, sum(amount) AS amount FROM unnest($2::text[], $3::numeric[]) AS asked (account, amount) GROUP BY account) AS asked
    WHERE id = asked.account
)
INSERT INTO outbox_record (topic, key, value) SELECT $4, key, value FROM unnest($5::bytea[], $6::bytea[]) AS record (key, value)
"""


class Conflict(Exception):
    """The same id came with another content."""


class Partition:
    """One partition's loop: fetch, one transaction."""

    def __init__(self, consumer: AIOKafkaConsumer, partition: TopicPartition, connection: asyncpg.Connection) -> None:
        self._consumer = consumer
        self._partition = partition
        self._connection = connection
        self._read = checkout().reader("floor")
        self.next_offset: int | None = None

    async def run(self) -> None:
        """Consume until stopped."""
        while True:
            batches = await self._consumer.getmany(self._partition, timeout_ms=1000, max_records=BATCH)
            for messages in batches.values():
                await self._settle([self._reading(message) for message in messages])
                self.next_offset = messages[-1].offset + 1

    def _reading(self, record: ConsumerRecord) -> Reading[PaymentRequested]:
        message = Message(topic=record.topic, partition=record.partition, offset=record.offset, key=record.key, value=record.value)
        reading = self._read(message)
        assert isinstance(reading, Reading)
        return reading

    async def _settle(self, readings: Sequence[Reading[PaymentRequested]]) -> None:
        firsts: dict[str, Reading[PaymentRequested]] = {}
        for reading in readings:
            if firsts.setdefault(reading.message_id, reading).fingerprint != reading.fingerprint:
                raise Conflict(reading.message_id)
        async with self._connection.transaction():
            prints = [reading.fingerprint for reading in firsts.values()]
            claimed = {row["id"] for row in await self._connection.fetch(CLAIM, list(firsts), prints)}
            if len(claimed) < len(firsts):
                await self._compare(firsts, firsts.keys() - claimed)
            await self._apply([firsts[id].payload for id in firsts if id in claimed])

    async def _compare(self, firsts: dict[str, Reading[PaymentRequested]], lost: set[str]) -> None:
        for row in await self._connection.fetch(SEEN, list(lost)):
            if firsts[row["id"]].fingerprint != row["fingerprint"]:
                raise Conflict(row["id"])

    async def _apply(self, payments: Sequence[PaymentRequested]) -> None:
        columns: Sequence[Sequence[Any]] = (
            [payment.payment_id for payment in payments],
            [payment.account for payment in payments],
            [payment.amount for payment in payments],
        )
        keys = [payment.account.encode() for payment in payments]
        values = [to_json(record_value(payment)) for payment in payments]
        await self._connection.execute(APPLY, *columns, OUT, keys, values)


async def commit_offsets(consumer: AIOKafkaConsumer, partitions: dict[TopicPartition, Partition]) -> None:
    """Commit what is settled, five times a second."""
    committed: dict[TopicPartition, int] = {}
    while True:
        await asyncio.sleep(COMMIT_EVERY.total_seconds())
        reached = {key: partition.next_offset for key, partition in partitions.items() if partition.next_offset is not None}
        moved = {key: offset for key, offset in reached.items() if committed.get(key) != offset}
        if moved:
            await consumer.commit(moved)
            committed.update(moved)


async def run(job: Job) -> None:
    """Consume until stopped."""
    pool = await asyncpg.create_pool(job.dsn, min_size=job.partitions, max_size=job.partitions)
    consumer = await assigned_consumer(job, fetch_max_wait_ms=25)
    partitions = {key: Partition(consumer, key, await pool.acquire()) for key in consumer.assignment()}
    first_poll()
    await asyncio.gather(commit_offsets(consumer, partitions), *(partition.run() for partition in partitions.values()))


if __name__ == "__main__":
    start(run)

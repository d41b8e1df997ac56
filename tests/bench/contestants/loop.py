"""The loop that everybody writes first: one transaction per message, offsets committed once a second.

`commit_each`: the offset is committed with every message instead. A message that fails goes into a table, alone.
"""

import asyncio
import json
import time
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.bench.job import Job, first_poll, start
from tests.bench.work import (
    INSERT_DEAD_LETTER,
    INSERT_PAYMENT,
    INSERT_PROCESSED,
    INSERT_RECORD,
    OUT,
    POISON,
    UPDATE_BALANCE,
    PaymentRequested,
    Poisoned,
    record_value,
)


async def assigned_consumer(job: Job, **options: Any) -> AIOKafkaConsumer:
    """Return a consumer that has been given its partitions."""
    consumer = AIOKafkaConsumer(
        job.topic, bootstrap_servers=job.bootstrap, group_id=job.group, enable_auto_commit=False, auto_offset_reset="earliest", **options
    )
    await consumer.start()
    while len(consumer.assignment()) < job.partitions:
        await asyncio.sleep(0.01)
    return consumer


async def handle(connection: asyncpg.Connection, value: bytes) -> None:
    """Validate one message and apply it, unless it was applied before."""
    payment = PaymentRequested.model_validate_json(value)
    async with connection.transaction():
        if await connection.fetchval(INSERT_PROCESSED, payment.payment_id) is None:
            return
        await connection.execute(INSERT_PAYMENT, payment.payment_id, payment.account, payment.amount)
        await connection.execute(UPDATE_BALANCE, payment.account, payment.amount)
        if payment.note == POISON:
            raise Poisoned
        await connection.execute(INSERT_RECORD, OUT, payment.account.encode(), json.dumps(record_value(payment)).encode())


async def settle(connection: asyncpg.Connection, value: bytes) -> None:
    """Handle one message; keep it aside if it fails."""
    try:
        await handle(connection, value)
    except Poisoned as error:
        await connection.execute(INSERT_DEAD_LETTER, value, repr(error))


class Offsets:
    """Commits what is done: after every message, or once a second and when there is nothing to do."""

    def __init__(self, consumer: AIOKafkaConsumer, interval: float) -> None:
        self._consumer = consumer
        self._interval = interval
        self._done: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()

    async def done(self, partition: TopicPartition, offset: int) -> None:
        """This message is settled."""
        self._done[partition] = offset + 1
        if time.monotonic() - self._committed_at >= self._interval:
            await self.commit()

    async def commit(self) -> None:
        """Commit now."""
        if self._done:
            done, self._done = self._done, {}
            await self._consumer.commit(done)
        self._committed_at = time.monotonic()


async def run(job: Job) -> None:
    """Consume until stopped."""
    connection = await asyncpg.connect(job.dsn)
    consumer = await assigned_consumer(job)
    offsets = Offsets(consumer, 0 if job.options.get("commit_each") else 1)
    first_poll()
    while True:
        batches = await consumer.getmany(timeout_ms=200, max_records=500)
        for partition, messages in batches.items():
            for message in messages:
                await settle(connection, message.value)
                await offsets.done(partition, message.offset)
        if not batches:
            await offsets.commit()


if __name__ == "__main__":
    start(run)

"""The loop with 16 tasks over a pool: one transaction per message, no order between them.

Offsets are committed once a second, up to what is settled without a gap: each poll's messages are settled before the next poll.
"""

import asyncio
from typing import Any

import asyncpg

from tests.bench.contestants.loop import Offsets, assigned_consumer, settle
from tests.bench.job import Job, first_poll, start

TASKS = 16


async def worker(pool: "asyncpg.Pool[Any]", queue: "asyncio.Queue[bytes]") -> None:
    """Settle messages from the queue."""
    async with pool.acquire() as connection:
        while True:
            value = await queue.get()
            await settle(connection, value)
            queue.task_done()


async def run(job: Job) -> None:
    """Consume until stopped."""
    pool = await asyncpg.create_pool(job.dsn, min_size=TASKS, max_size=TASKS)
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    workers = [asyncio.create_task(worker(pool, queue)) for _ in range(TASKS)]
    consumer = await assigned_consumer(job)
    offsets = Offsets(consumer, 1)
    first_poll()
    while workers:
        batches = await consumer.getmany(timeout_ms=200, max_records=500)
        for messages in batches.values():
            for message in messages:
                queue.put_nowait(message.value)
        await queue.join()
        for partition, messages in batches.items():
            await offsets.done(partition, messages[-1].offset)
        if not batches:
            await offsets.commit()


if __name__ == "__main__":
    start(run)

"""FastStream with an inbox written by hand: the same transaction per message, acknowledged after it.

`workers`: so many messages side by side, which FastStream does by as many members of the group, one per partition at most.
"""

import asyncio
from typing import Any

import asyncpg
from aiokafka import ConsumerRebalanceListener
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage

from tests.bench.contestants.loop import settle
from tests.bench.job import Job, first_poll, start


class Told(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Tells the first poll once partitions are there to be polled."""

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """The first member that gets partitions polls now."""
        if assigned:
            first_poll()


async def run(job: Job) -> None:
    """Consume until stopped."""
    workers = job.options.get("workers", 1)
    pool = await asyncpg.create_pool(job.dsn, min_size=workers, max_size=workers)
    broker = KafkaBroker(job.bootstrap, logger=None)

    @broker.subscriber(
        job.topic,
        group_id=job.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
        max_workers=workers,
        listener=Told(),
    )
    async def handle(message: KafkaMessage) -> None:
        async with pool.acquire() as connection:
            await settle(connection, message.body)

    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    start(run)

"""The bare loop beside the relay: select, send the same batches, delete. No lease, no fence, no order after a failure."""

import asyncio

import asyncpg

from consumer_idem.message import OutboxRecord
from consumer_idem.outbox.headers import cloud_event
from consumer_idem.settings import Settings
from consumer_idem.wiring import make_publisher
from tests.bench.job import Job, first_poll, start

ROWS = 5_000
SELECT = """
SELECT id, message_id, topic, key, value, source, type,
       to_char(coalesce(message_time, created_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS time
FROM idem.outbox ORDER BY id LIMIT $1
"""
DELETE = "DELETE FROM idem.outbox WHERE id = ANY ($1::bigint[])"


def record(row: asyncpg.Record) -> OutboxRecord:
    """Return the row as it is to be sent."""
    headers = cloud_event(row["message_id"], row["source"], row["type"], row["time"])
    return OutboxRecord(id=row["message_id"], topic=row["topic"], key=row["key"], value=row["value"], headers=headers)


async def run(job: Job) -> None:
    """Publish until stopped."""
    connection = await asyncpg.connect(job.dsn)
    publisher = make_publisher(Settings(kafka=job.bootstrap, client=job.options["client"]))
    await publisher.start()
    first_poll()
    while True:
        rows = await connection.fetch(SELECT, ROWS)
        if not rows:
            await asyncio.sleep(0.05)
            continue
        await publisher.publish([record(row) for row in rows])
        await connection.execute(DELETE, [row["id"] for row in rows])


if __name__ == "__main__":
    start(run)

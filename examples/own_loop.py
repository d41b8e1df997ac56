"""Your own consumer loop, with the core that settles each message once.

    python -m examples.own_loop postgresql://localhost/shop localhost:9092

You fetch, you commit offsets; `app.process` does the rest. It is for loops that cannot be given up: `consumer-idem run` also
fences stopped workers, reads partitions side by side, and notices a database that went back in time.
"""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from consumer_idem import Message, Retry
from examples.payments import app

Records = Sequence["ConsumerRecord[bytes | None, bytes | None]"]


async def consume(bootstrap: str) -> None:
    """Consume until cancelled."""
    consumer = AIOKafkaConsumer(
        "payments.requested",
        bootstrap_servers=bootstrap,
        group_id=app.group,
        # Offsets are committed below, and only for what is settled.
        enable_auto_commit=False,
        # The default, latest, skips what came before the first start.
        auto_offset_reset="earliest",
        # The default also reads what a producer's transaction has taken back.
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=500, max_records=500)).items():
                await settle(consumer, partition, records)
    finally:
        await consumer.stop()
        await app.close()


async def settle(consumer: AIOKafkaConsumer, partition: TopicPartition, records: Records) -> None:
    """Settle some messages of one partition, and commit exactly what is settled."""
    outcomes = await app.process([message_of(record) for record in records])
    settled = next((place for place, outcome in enumerate(outcomes) if isinstance(outcome, Retry)), len(outcomes))
    try:
        if settled:
            await consumer.commit({partition: records[settled - 1].offset + 1})
        if settled < len(records):
            # From the first Retry on, everything comes again.
            consumer.seek(partition, records[settled].offset)
            retry = outcomes[settled]
            assert isinstance(retry, Retry)
            await asyncio.sleep(retry.after.total_seconds())
    except (CommitFailedError, IllegalStateError):
        # The partition was given to another member, which gets the messages again and skips what is settled.
        return


def message_of(record: "ConsumerRecord[bytes | None, bytes | None]") -> Message:
    return Message(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        time=datetime.fromtimestamp(record.timestamp / 1000, UTC) if record.timestamp >= 0 else None,
    )


if __name__ == "__main__":
    app.runtime({"database": sys.argv[1]})
    asyncio.run(consume(sys.argv[2]))

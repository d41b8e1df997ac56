"""DBOS: its Kafka consumer starts a durable workflow per message, whose one step is the same transaction."""

import asyncio
import json
import time
from typing import Any

import dbos._kafka
from confluent_kafka import Consumer
from dbos import DBOS, KafkaMessage, SQLAlchemyDatasource
from sqlalchemy import text

from tests.bench.job import Job, first_poll, start
from tests.bench.work import OUT, PaymentRequested, record_value

STATEMENTS = [
    text("INSERT INTO payment (id, account, amount) VALUES (:id, :account, :amount)"),
    text("UPDATE account SET balance = balance + :amount WHERE id = :account"),
    text("INSERT INTO outbox_record (topic, key, value) VALUES (:topic, :key, :value)"),
]
CLAIM = text("INSERT INTO processed (id) VALUES (:id) ON CONFLICT DO NOTHING RETURNING id")


class Told(Consumer):
    """Tells when the first poll that brought messages began."""

    def consume(self, *args: Any, **kwargs: Any) -> Any:
        """Poll."""
        began = time.monotonic()
        messages = super().consume(*args, **kwargs)
        if messages:
            first_poll(began)
        return messages


def declare(job: Job, datasource: SQLAlchemyDatasource) -> None:
    """Declare the workflow that a message starts."""

    @datasource.transaction(isolation_level="READ COMMITTED")
    def settle(value: str) -> None:
        payment = PaymentRequested.model_validate_json(value)
        session = datasource.sql_session()
        if session.execute(CLAIM, {"id": payment.payment_id}).first() is None:
            return
        row = {"id": payment.payment_id, "account": payment.account, "amount": payment.amount, "topic": OUT}
        record = {"key": payment.account.encode(), "value": json.dumps(record_value(payment)).encode()}
        for statement in STATEMENTS:
            session.execute(statement, {**row, **record})

    @DBOS.kafka_consumer({"bootstrap.servers": job.bootstrap, "group.id": job.group, "auto.commit.interval.ms": 1000}, [job.topic])
    @DBOS.workflow()
    def apply_payment(message: KafkaMessage) -> None:
        assert message.value is not None
        settle(message.value.decode() if isinstance(message.value, bytes) else message.value)


async def run(job: Job) -> None:
    """Consume until stopped."""
    dbos._kafka.Consumer = Told  # type: ignore[misc]  # to see its first poll
    DBOS(config={"name": "bench", "system_database_url": job.dsn, "log_level": "ERROR"})
    declare(job, SQLAlchemyDatasource.create(database_url=job.dsn))
    DBOS.launch()
    await asyncio.Event().wait()


if __name__ == "__main__":
    start(run)

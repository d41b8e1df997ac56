"""Ours, as a user runs it: `consumer-idem run tests.bench.contestants.ours:app`.

`handler` is await, defer or batch; `client` aiokafka or confluent; `relay` publishes, too; `settings` what a user may set beside it.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from consumer_idem.app import App
from consumer_idem.cli import main as commands
from consumer_idem.consumer.case import Item
from consumer_idem.message import Message, Partition
from consumer_idem.ports import Subscriber
from consumer_idem.settings import Settings
from consumer_idem.transaction.tx import Tx
from consumer_idem.wiring import make_subscriber
from tests.bench.job import Job, first_poll, read_job
from tests.bench.work import INSERT_PAYMENT, OUT, POISON, UPDATE_BALANCE, PaymentRequested, Poisoned, checkout, record_value

APPLY = """
WITH paid AS (
    INSERT INTO payment (id, account, amount) SELECT * FROM unnest($1::text[], $2::text[], $3::numeric[])
)
UPDATE account SET balance = balance + asked.amount
FROM (SELECT account, sum(amount) AS amount FROM unnest($2::text[], $3::numeric[]) AS asked (account, amount) GROUP BY account) AS asked
WHERE id = asked.account
"""


async def awaiting(payment: PaymentRequested, tx: Tx) -> None:
    """Awaits its two statements; a poisoned message raises after them."""
    await tx.execute(INSERT_PAYMENT, payment.payment_id, payment.account, payment.amount)
    await tx.execute(UPDATE_BALANCE, payment.account, payment.amount)
    if payment.note == POISON:
        raise Poisoned
    tx.publish(OUT, key=payment.account, value=record_value(payment))


async def deferring(payment: PaymentRequested, tx: Tx) -> None:
    """Defers its two statements; a poisoned message raises before anything was sent."""
    tx.defer(INSERT_PAYMENT, payment.payment_id, payment.account, payment.amount)
    tx.defer(UPDATE_BALANCE, payment.account, payment.amount, key=payment.account)
    if payment.note == POISON:
        raise Poisoned
    tx.publish(OUT, key=payment.account, value=record_value(payment))


async def in_batches(items: Sequence[Item[PaymentRequested]], tx: Tx) -> None:
    """Writes for all messages at once; a poisoned message spoils them all, and halves of them run again until it stands alone."""
    payments = [item.payload for item in items]
    if any(payment.note == POISON for payment in payments):
        raise Poisoned
    columns = (
        [payment.payment_id for payment in payments],
        [payment.account for payment in payments],
        [payment.amount for payment in payments],
    )
    await tx.execute(APPLY, *columns)
    for item, payment in zip(items, payments, strict=True):
        item.publish(OUT, key=payment.account, value=record_value(payment))


HANDLERS: dict[str, Callable[..., Any]] = {"await": awaiting, "defer": deferring, "batch": in_batches}


def telling(subscriber: Subscriber) -> Subscriber:
    """Let `subscriber` tell its first poll."""
    poll = subscriber.poll

    async def told(partition: Partition, limit: int, timeout: timedelta) -> Sequence[Message]:
        first_poll()
        subscriber.poll = poll  # type: ignore[method-assign]  # from the second poll on it is as it was
        return await poll(partition, limit, timeout)

    subscriber.poll = told  # type: ignore[method-assign]  # for the first poll
    return subscriber


def make_app(job: Job) -> App:
    """Return the App of a user."""
    settings = Settings(
        database=job.dsn, kafka=job.bootstrap, client=job.options.get("client", "aiokafka"), **job.options.get("settings", {})
    )
    app = App(group=job.group, settings=settings, subscriber=lambda: telling(make_subscriber(settings, job.group)))
    handler = job.options["handler"]
    declare = app.batch_handler if handler == "batch" else app.handler
    declare(job.topic, source=checkout(), name="apply-payment")(HANDLERS[handler])
    return app


def __getattr__(name: str) -> App:
    """The App of the job that the environment names, for `consumer-idem run`."""
    if name != "app":
        raise AttributeError(name)
    return make_app(read_job())


def main() -> None:
    """Run the command line in this process; `plain` without uvloop, even where it is installed."""
    if read_job().options.get("plain"):
        sys.modules["uvloop"] = None  # type: ignore[assignment]  # what Python does for a module that must not be imported
    relay = [] if read_job().options.get("relay") else ["--no-relay"]
    sys.argv = ["consumer-idem", "run", "tests.bench.contestants.ours:app", *relay, "--log-level", "warning"]
    commands()


if __name__ == "__main__":
    main()

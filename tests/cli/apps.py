"""Apps for the command line to find."""

import asyncio
import os
from datetime import timedelta
from typing import Any

from consumer_idem.app import App
from consumer_idem.consumer.handler import RetryPolicy
from consumer_idem.outcome import Rejected
from tests.shop import PaymentRequested, checkout

TOPIC = os.environ.get("CLI_TOPIC", "cli.requested")
APPLIED = os.environ.get("CLI_APPLIED", "cli.applied")

app = App(group=TOPIC)
not_an_app = {"group": "cli"}


class Failing(App):
    """An App that fails as nobody expects."""

    async def run(self, **_: Any) -> None:
        raise RuntimeError("no answer from postgresql://shop:hunter2@db/shop")


failing = Failing(group="failing", database="postgresql://db/shop")


@app.handler(
    TOPIC,
    source=checkout(),
    name="apply-payment",
    retry=RetryPolicy(release_on=(LookupError,), release_after=timedelta(milliseconds=200)),
)
async def apply(payment: PaymentRequested, tx: Any) -> Rejected | None:
    if payment.note == "hang":
        print("hanging", flush=True)
        await asyncio.Event().wait()
    if payment.note == "refuse":
        return Rejected("insufficient-funds", {"missing": 3})
    if payment.note == "needs account" and not await tx.fetch("SELECT FROM account WHERE id = $1", payment.account):
        raise LookupError(f"no account {payment.account}")
    await tx.execute("INSERT INTO payment VALUES ($1, $2, $3)", payment.payment_id, payment.account, payment.amount)
    tx.publish(APPLIED, key=payment.account, value={"payment_id": payment.payment_id})
    return None

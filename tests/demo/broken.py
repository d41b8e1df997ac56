"""The demo's app with a planted fault: every tenth payment takes effect twice."""

from typing import Any

from consumer_idem.app import App
from consumer_idem.demo.payments import PaymentRequested, apply_payment, checkout, names
from consumer_idem.outcome import Rejected

app = App(group=names.group)


@app.handler(names.requested, source=checkout, name="apply-payment")
async def apply_twice(payment: PaymentRequested, tx: Any) -> Rejected | None:
    outcome = await apply_payment(payment, tx)
    return await apply_payment(payment, tx) if payment.payment_id.endswith("0") else outcome

"""The app that the demo runs: `consumer-idem run consumer_idem.demo.payments:app`."""

from decimal import Decimal

from pydantic import BaseModel

from consumer_idem import App, Fingerprint, Rejected, Source, Tx, field
from consumer_idem.demo.names import Names

names = Names.of_this_process()


class PaymentRequested(BaseModel):
    """What the shop's checkout sends."""

    payment_id: str
    account: str
    amount: Decimal
    currency: str
    note: str | None = None


checkout = Source(
    "checkout", model=PaymentRequested, message_id=field("payment_id"), fingerprint=Fingerprint("account", "amount", "currency")
)

app = App(group=names.group)


@app.handler(names.requested, source=checkout, name="apply-payment")
async def apply_payment(payment: PaymentRequested, tx: Tx) -> Rejected | None:
    """Take the money, or refuse. Nothing here looks for duplicates, and no unique index hides them."""
    taken = await tx.fetchval(
        "UPDATE account SET balance = balance - $2 WHERE id = $1 AND balance >= $2 RETURNING id", payment.account, payment.amount
    )
    if taken is None:
        await tx.execute("INSERT INTO refusal (payment_id) VALUES ($1)", payment.payment_id)
        return Rejected("insufficient-funds")
    await tx.execute("INSERT INTO payment (id, account, amount) VALUES ($1, $2, $3)", payment.payment_id, payment.account, payment.amount)
    tx.publish(names.applied, key=payment.account, value={"payment_id": payment.payment_id})
    return None

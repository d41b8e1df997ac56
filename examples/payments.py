"""Each payment takes effect once, however often its message comes.

    psql shop -f examples/tables.sql
    consumer-idem schema install --database postgresql://localhost/shop
    consumer-idem run examples.payments:app --database postgresql://localhost/shop --kafka localhost:9092

The topics payments.requested and payments.applied must exist.
"""

from decimal import Decimal

from pydantic import BaseModel

from consumer_idem import App, Fingerprint, Rejected, Source, Tx, field


class PaymentRequested(BaseModel):
    payment_id: str
    account: str
    amount: Decimal
    currency: str
    note: str | None = None


checkout = Source(
    "checkout",
    model=PaymentRequested,
    message_id=field("payment_id"),
    # The same id with another of these is a conflict; a changed note is not.
    fingerprint=Fingerprint("account", "amount", "currency"),
)

app = App(group="payments")


@app.handler("payments.requested", source=checkout, name="apply-payment")
async def apply_payment(payment: PaymentRequested, tx: Tx) -> Rejected | None:
    taken = await tx.fetchval(
        "UPDATE account SET balance = balance - $2 WHERE id = $1 AND balance >= $2 RETURNING id", payment.account, payment.amount
    )
    if taken is None:
        # Remembered: a repeat of this message gets the same answer, even if there is money by then.
        return Rejected("insufficient-funds")
    await tx.execute("INSERT INTO payment (id, account, amount) VALUES ($1, $2, $3)", payment.payment_id, payment.account, payment.amount)
    tx.publish("payments.applied", key=payment.account, value={"payment_id": payment.payment_id})
    return None

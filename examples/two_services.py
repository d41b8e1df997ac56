"""Two services in a row: payments are applied by the first and booked by the second, each exactly once.

    psql payments -f examples/tables.sql; psql ledger -f examples/tables.sql
    consumer-idem schema install --database postgresql://localhost/payments
    consumer-idem schema install --database postgresql://localhost/ledger
    consumer-idem run examples.two_services:payments --database postgresql://localhost/payments
    consumer-idem run examples.two_services:ledger --database postgresql://localhost/ledger

The topics payments.requested, payments.applied and ledger.booked must exist.

The relay of the first service may publish a record twice: after a crash between Kafka's acknowledgement and its own note of
it. Both copies carry the same `ce_source` and `ce_id`, and that is all that the second service needs to skip one of them.
"""

from decimal import Decimal

from pydantic import BaseModel

from consumer_idem import App, Fingerprint, Rejected, Source, Tx, field, header


class PaymentRequested(BaseModel):
    payment_id: str
    account: str
    amount: Decimal


class PaymentApplied(BaseModel):
    payment_id: str
    account: str
    amount: Decimal


checkout = Source("checkout", model=PaymentRequested, message_id=field("payment_id"), fingerprint=Fingerprint("account", "amount"))

payments = App(group="payments")


@payments.handler("payments.requested", source=checkout, name="apply-payment")
async def apply_payment(payment: PaymentRequested, tx: Tx) -> Rejected | None:
    taken = await tx.fetchval(
        "UPDATE account SET balance = balance - $2 WHERE id = $1 AND balance >= $2 RETURNING id", payment.account, payment.amount
    )
    if taken is None:
        return Rejected("insufficient-funds")
    await tx.execute("INSERT INTO payment (id, account, amount) VALUES ($1, $2, $3)", payment.payment_id, payment.account, payment.amount)
    applied = PaymentApplied(payment_id=payment.payment_id, account=payment.account, amount=payment.amount)
    tx.publish("payments.applied", key=payment.account, value=applied)
    return None


# The id that the first service's relay sends; it counts within the `ce_source` that is sent with it.
applied_payments = Source(
    "applied-payments", model=PaymentApplied, message_id=header("ce_id"), fingerprint=Fingerprint("payment_id", "account", "amount")
)

ledger = App(group="ledger")


@ledger.handler("payments.applied", source=applied_payments, name="book-payment")
async def book_payment(payment: PaymentApplied, tx: Tx) -> None:
    await tx.execute(
        "INSERT INTO entry (payment_id, account, amount) VALUES ($1, $2, $3)", payment.payment_id, payment.account, -payment.amount
    )
    tx.publish("ledger.booked", key=payment.account, value={"payment_id": payment.payment_id})

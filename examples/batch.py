"""A batch handler: all fresh messages of a batch at once, with a fixed number of statements whatever their number.

    consumer-idem run examples.batch:app --database postgresql://localhost/shop --kafka localhost:9092

It credits accounts, which needs no look at the balance. What must look at it row by row is better off in a handler of single
messages, as in payments.py.
"""

from collections.abc import Sequence
from decimal import Decimal

from pydantic import BaseModel

from consumer_idem import App, Fingerprint, Item, Rejected, Source, Tx, field


class Deposit(BaseModel):
    deposit_id: str
    account: str
    amount: Decimal


bank = Source("bank", model=Deposit, message_id=field("deposit_id"), fingerprint=Fingerprint("account", "amount"))

app = App(group="deposits")


@app.batch_handler("deposits.booked", source=bank, name="credit-deposit")
async def credit(items: Sequence[Item[Deposit]], tx: Tx) -> None:
    accepted = []
    for item in items:
        if item.payload.amount <= 0:
            item.reject(Rejected("nothing-to-credit"))
        else:
            accepted.append(item)
            item.publish("deposits.credited", key=item.payload.account, value={"deposit_id": item.payload.deposit_id})
    # Ordered by id, so that two partitions lock accounts in the same order and cannot deadlock.
    await tx.execute(
        """
        INSERT INTO account (id, balance)
        SELECT id, sum(amount) FROM unnest($1::text[], $2::numeric[]) AS deposit (id, amount) GROUP BY id ORDER BY id
        ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance
        """,
        [item.payload.account for item in accepted],
        [item.payload.amount for item in accepted],
    )

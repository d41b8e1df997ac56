"""A worker process for tests: `python -m tests.programs.worker`, configured by the environment."""

import asyncio
import os
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from consumer_idem.app import App
from consumer_idem.cli.logs import set_up
from consumer_idem.consumer.handler import RetryPolicy
from tests.shop import PaymentRequested, checkout

SQL = "INSERT INTO payment VALUES ($1, $2, $3)"


async def awaiting(request: PaymentRequested, tx: Any) -> None:
    await tx.execute(SQL, request.payment_id, request.account, request.amount)
    tx.publish(os.environ.get("OUT", "payments.applied"), key=request.account, value={"payment_id": request.payment_id})
    tx.after_commit(print, f"applied {request.payment_id}", flush=True)
    if request.note == "kill":
        os.kill(os.getpid(), 9)
    if request.note == "raise":
        raise ValueError("asked to raise")
    while request.note == "never returns":
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
    if request.note == "block":
        time.sleep(float(os.environ["BLOCK"]))  # noqa: ASYNC251  # the fault itself


async def deferring(request: PaymentRequested, tx: Any) -> None:
    tx.defer(SQL, request.payment_id, request.account, request.amount)
    tx.publish(os.environ.get("OUT", "payments.applied"), key=request.account, value={"payment_id": request.payment_id})


def policy() -> RetryPolicy:
    deadline = float(os.environ.get("DEADLINE", "0"))
    return RetryPolicy(first_delay=timedelta(milliseconds=10), deadline=timedelta(seconds=deadline) if deadline else None)


def make_app() -> App:
    app = App(group=os.environ.get("GROUP", "shop"))
    handler = {"awaiting": awaiting, "deferring": deferring}[os.environ.get("HANDLER", "awaiting")]
    app.handler(os.environ["TOPIC"], source=checkout(), name=os.environ.get("NAME", "apply-payment"), retry=policy())(handler)
    return app


async def main() -> None:
    set_up("info", as_json=False)
    app = make_app()
    print("ready", flush=True)
    await app.run(relay=os.environ.get("RELAY") == "1")


if __name__ == "__main__":
    asyncio.run(main())

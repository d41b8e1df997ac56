"""The pytest plugin as a user has it: it finds a handler that is not exactly once, and passes one that is."""

from typing import Any

import pytest

pytest_plugins = ["pytester"]

HANDLERS = """
import asyncpg
import pytest
from pydantic import BaseModel

from consumer_idem import App, Applied, Fingerprint, Skipped, Source, field
from consumer_idem.testing import Crashed


class Payment(BaseModel):
    id: str
    amount: int


checkout = Source("checkout", model=Payment, message_id=field("id"), fingerprint=Fingerprint("amount"))
mailed = []


def make(handler):
    app = App(group="shop")
    app.handler("payments", source=checkout, name="apply")(handler)
    return app


async def pay(payment, tx):
    await tx.execute("CREATE TABLE IF NOT EXISTS paid (id text)")
    await tx.execute("INSERT INTO paid VALUES ($1)", payment.id)


async def good(payment, tx):
    await pay(payment, tx)
    tx.after_commit(mailed.append, payment.id)


async def planted_bug(payment, tx):
    await pay(payment, tx)
    mailed.append(payment.id)  # before the commit: it is sent again when the message comes again


@pytest.mark.parametrize("point", ["claim.after", "handlers.after", "seal.after", "commit.after"])
@pytest.mark.parametrize("handler", [good, planted_bug])
async def test_a_crash_sends_one_mail_at_most(deliver, redeliver, crash_at, idem_postgres, handler, point):
    mailed.clear()
    app = make(handler)
    with crash_at(point), pytest.raises(Crashed):
        await deliver(app, {"id": "4711", "amount": 5})
    outcomes = await redeliver()

    assert outcomes == ([Skipped()] if point == "commit.after" else [Applied()])
    assert await redeliver() == [Skipped()]
    assert await deliver(app, {"id": "4711", "amount": 5}) == [Skipped()]
    connection = await asyncpg.connect(idem_postgres)
    assert await connection.fetchval("SELECT count(*) FROM paid") == 1
    await connection.close()
    assert mailed.count("4711") <= 1
"""


@pytest.mark.timeout(180)
def test_the_plugin_finds_a_planted_bug_in_a_users_handler(pytester: Any):
    pytester.makepyfile(test_shop=HANDLERS)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    result.assert_outcomes(passed=6, failed=2)
    result.stdout.fnmatch_lines(["FAILED *planted_bug-handlers.after*", "FAILED *planted_bug-seal.after*"])

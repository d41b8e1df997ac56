"""A worker that is stopped in the middle of a transaction does not block its successor, wherever it was stopped."""

import asyncio
from datetime import timedelta

from consumer_idem.outcome import Applied
from consumer_idem.testing.waiting import eventually
from tests.proxied import through
from tests.shop import declare, insert, open_shop, payment

ACTIVE = """
SELECT wait_event FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


async def test_b2_a_worker_stopped_after_it_sent_a_part_of_a_statement_does_not_block_its_successor(dsn):
    """The network stands still between Parse and Bind: PostgreSQL then takes the transaction for active, not idle."""

    async def handler(request, tx):
        await insert(request, tx)
        # Parse and Describe are answered; Bind, Execute and Sync are still to come.
        await tx._unit.connection.raw.prepare("SELECT 1 FROM payment WHERE id = 'not seen before'")
        proxy.hold()
        reached.set()
        await tx.fetch("SELECT 1 FROM payment WHERE id = 'not seen before'")

    reached = asyncio.Event()
    proxy, address = through(dsn)
    async with proxy:
        apps = declare(handler), declare(insert)
        for app, where in zip(apps, (address, dsn), strict=True):
            app.runtime({"database": where, "statement_timeout": timedelta(seconds=2), "lock_timeout": timedelta(seconds=0.3)})
        async with open_shop(dsn, app=apps[0]) as stopped, open_shop(dsn, app=apps[1]) as successor:

            async def stands_still():
                return await successor.rows(ACTIVE) == ["ClientRead"]

            first = asyncio.create_task((await stopped.lane(0)).process(payment(0, "4711")))
            await reached.wait()
            # It waits a moment after it has answered.
            await eventually(stands_still)

            async with asyncio.timeout(10):
                assert await (await successor.lane(0)).process(payment(0, "4711")) == [Applied()]
            first.cancel()
            proxy.release()
            await asyncio.wait([first])
            assert await successor.payments() == ["4711"]

"""Claims and transactions under what PostgreSQL and other workers do to them."""

import asyncio
import random
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from consumer_idem.consumer.handler import RetryPolicy
from consumer_idem.inbox.table import Inbox
from consumer_idem.outcome import Applied, Quarantined, Reason, Skipped
from consumer_idem.postgres.asyncpg import AsyncpgConnection
from consumer_idem.sql import Queries
from tests.planted import planted
from tests.shop import insert, insert_later, open_shop, payment


async def race(dsn, *, patience=0.3):
    """Two workers handle one payment at the same time, if both come as far as the handler within `patience`."""
    both, here = asyncio.Event(), []

    async def handler(request, tx):
        here.append(1)
        if len(here) == 2:
            both.set()
        with_other = asyncio.create_task(both.wait())
        await asyncio.wait([with_other], timeout=patience)
        with_other.cancel()
        await insert(request, tx)

    async with open_shop(dsn, handler) as one, open_shop(dsn, handler) as other:
        lanes = await one.lane(0), await other.lane(1)
        outcomes = await asyncio.gather(lanes[0].process(payment(0, "4711")), lanes[1].process(payment(0, "4711", partition=1)))
        assert await one.payments() == ["4711"]
        assert sorted(map(str, outcomes)) == sorted(map(str, [[Applied()], [Skipped()]]))


async def test_b1_two_workers_with_one_key_apply_it_once(dsn):
    await race(dsn)


async def test_b1_planted_looking_before_inserting_is_caught(dsn):
    connection = await asyncpg.connect(dsn)
    await connection.execute("ALTER TABLE idem.inbox DROP CONSTRAINT inbox_pkey")
    await connection.close()
    look = "WHERE NOT EXISTS (SELECT FROM idem.inbox AS there WHERE there.key_hash = claim.key_hash) ORDER BY"
    claim = Queries("inbox", "idem")["claim"]
    assert "ON CONFLICT (key_hash) DO NOTHING" in claim
    with planted("inbox", "claim", "ON CONFLICT (key_hash) DO NOTHING", ""), planted_too("claim", "ORDER BY", look):
        with pytest.raises(AssertionError):
            await race(dsn, patience=10)


def planted_too(name, old, new):
    """A second bug in a file that has one already."""
    from unittest import mock

    from consumer_idem import sql

    read = sql._text

    def text(package, file, schema):
        found = read(package, file, schema)
        return found.replace(old, new) if file == name else found

    return mock.patch.object(sql, "_text", text)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_b3_the_databases_own_isolation_level_changes_nothing(dsn, level):
    connection = await asyncpg.connect(dsn)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    await connection.close()

    await race(dsn)


async def test_b4_one_statement_could_see_neither_its_own_claim_nor_the_winners(dsn):
    """Why losers are read by a second statement: this is what a single one says."""
    one, other = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    await one.execute("CREATE TABLE claimed (key int PRIMARY KEY)")
    both = (
        "WITH won AS (INSERT INTO claimed VALUES (1) ON CONFLICT DO NOTHING RETURNING key) "
        "SELECT (SELECT count(*) FROM won) + (SELECT count(*) FROM claimed)"
    )
    winner = one.transaction()
    await winner.start()
    await one.execute("INSERT INTO claimed VALUES (1)")
    loser = asyncio.create_task(other.fetchval(both))
    async with asyncio.timeout(10):
        while not await one.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1", other.get_server_pid()):
            await asyncio.sleep(0.01)
    await winner.commit()

    assert await loser == 0
    await one.close()
    await other.close()


async def test_b5_claims_are_sorted_below_the_insert(dsn):
    connection = await asyncpg.connect(dsn)
    claim = Queries("inbox", "idem")["claim"]
    columns = len((await connection.prepare(claim)).get_parameters()) - 1
    lines = [row[0] for row in await connection.fetch("EXPLAIN " + claim, *[[]] * columns, uuid4())]
    await connection.close()

    depth = {step: line.index("->") for line in lines for step in ("Insert on inbox", "Sort ") if step in line and "->" in line}
    assert depth["Sort "] > depth["Insert on inbox"]


async def test_b5_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(dsn, caplog):
    async with open_shop(dsn, insert_later) as one, open_shop(dsn, insert_later) as other:
        lanes = await one.lane(0), await other.lane(1)
        for round in range(5):
            ids = [f"r{round}-{number}" for number in range(300)]
            await asyncio.gather(
                lanes[0].process(*(payment(round * 300 + place, id) for place, id in enumerate(ids))),
                lanes[1].process(*(payment(round * 300 + place, id, partition=1) for place, id in enumerate(reversed(ids)))),
            )

        assert len(await one.payments()) == len(set(await one.payments())) == 1500
    assert [record.error for record in caplog.records if hasattr(record, "error")] == []


async def test_b6_handlers_that_lock_hot_rows_in_any_order_all_get_through(dsn):
    chance = random.Random(1)

    async def transfer(request, tx):
        first, second = chance.sample(["a", "b", "c"], 2)
        await tx.execute("UPDATE account SET balance = balance - 1 WHERE id = $1", first)
        await asyncio.sleep(0)
        await tx.execute("UPDATE account SET balance = balance + 1 WHERE id = $1", second)
        await insert(request, tx)

    async with open_shop(dsn, transfer) as one, open_shop(dsn, transfer) as other:
        await one.rows("INSERT INTO account SELECT unnest('{a,b,c}'::text[]), 1000")
        lanes = await one.lane(0), await other.lane(1)
        outcomes = await asyncio.gather(
            lanes[0].process(*(payment(n) for n in range(40))), lanes[1].process(*(payment(n, f"q{n}", partition=1) for n in range(40)))
        )

        assert outcomes == [[Applied()] * 40] * 2
        assert len(await one.payments()) == 80
        assert await one.rows("SELECT sum(balance) FROM account") == [3000]


async def test_b6_lock_keys_takes_locks_in_one_order(dsn, caplog):
    async def handler(request, tx):
        names = ["a", "b", "c", "d"]
        random.shuffle(names)
        await tx.lock_keys(*names)
        await insert(request, tx)

    async with open_shop(dsn, handler) as one, open_shop(dsn, handler) as other:
        lanes = await one.lane(0), await other.lane(1)
        for number in range(20):
            await asyncio.gather(lanes[0].process(payment(number)), lanes[1].process(payment(number, f"q{number}", partition=1)))

        assert len(await one.payments()) == 40
    assert not [record for record in caplog.records if "Deadlock" in str(getattr(record, "error", ""))]


async def test_b7_a_batch_has_no_savepoint_of_ours_and_warns_of_many_of_the_users(dsn, monkeypatch):
    sent = []
    execute = AsyncpgConnection.execute

    async def noting(self, sql, *args):
        sent.append(sql)
        return await execute(self, sql, *args)

    async def handler(request, tx):
        await insert(request, tx)
        if request.note:
            async with tx.savepoint():
                await tx.execute("SELECT 1")

    monkeypatch.setattr(AsyncpgConnection, "execute", noting)
    async with open_shop(dsn, handler) as shop:
        lane = await shop.lane()
        await lane.process(*(payment(n) for n in range(100)))
        assert not [sql for sql in sent if "SAVEPOINT" in sql]
        with pytest.warns(UserWarning, match="50 savepoints"):
            await lane.process(*(payment(100 + n, note="x") for n in range(60)))


async def test_b16_a_server_that_is_killed_costs_nothing_but_time(services):
    from consumer_idem import sql

    server = services.postgres(fsync=True)
    connection = await asyncpg.connect(server.dsn())
    for script in sql.migrations("idem").values():
        await connection.execute(script)
    await connection.close()
    killed = []

    async def handler(request, tx):
        await insert(request, tx)
        if request.payment_id == "p25" and not killed:
            killed.append(1)
            await asyncio.to_thread(server.kill9)
            asyncio.get_running_loop().run_in_executor(None, server.start)

    async with open_shop(server.dsn(), handler) as shop:
        lane = await shop.lane()
        outcomes = []
        for first in range(0, 60, 20):
            outcomes += await lane.process(*(payment(n) for n in range(first, first + 20)))

        assert outcomes == [Applied()] * 60
        assert len(await shop.payments()) == 60
        assert await shop.rows("SELECT count(*) FROM idem.attempt") == [0]


@pytest.mark.parametrize(
    "id",
    [
        "with\x00nul",
        "\\u0000",
        "lone \ud800 surrogate",
        "".join(random.Random(1).choices("abcdefghijklmnop0123456789", k=3000)),
        "x" * 9000,
    ],
    ids=["nul", "escaped", "surrogate", "long random", "long compressible"],
)
async def test_b25_no_id_is_too_strange_to_be_settled_once(dsn, id):
    async def handler(request, tx):
        tx.defer("INSERT INTO payment VALUES ($1, 'x', 1)", "one")

    async with open_shop(dsn, handler) as shop:
        lane = await shop.lane()
        first = await lane.process(payment(0, id))
        again = await lane.process(payment(1, id))

        if id.startswith("lone"):
            # JSON that is not UTF-8 is no message; both copies are kept.
            assert [outcome.reason for outcome in first + again] == [Reason.UNDECODABLE] * 2
            assert await shop.rows("SELECT count(*) FROM idem.quarantine") == [2]
        else:
            assert (first, again, await shop.payments()) == ([Applied()], [Skipped()], ["one"])


async def test_b29_a_key_that_vanishes_between_losing_and_reading_is_claimed_again(dsn, monkeypatch):
    held = Inbox._held
    async with open_shop(dsn) as shop:
        lane = await shop.lane()
        await lane.process(payment(0, "4711"))

        async def pruned_first(self, connection, attempt, key_hashes):
            await shop.rows("DELETE FROM idem.inbox")
            monkeypatch.setattr(Inbox, "_held", held)
            return await held(self, connection, attempt, key_hashes)

        monkeypatch.setattr(Inbox, "_held", pruned_first)

        assert await lane.process(payment(1, "4711")) == [Applied()]


async def test_b29_keys_that_vanish_for_ever_are_nobodys_fault(dsn, monkeypatch):
    rounds = []

    async def always_gone(self, connection, attempt, key_hashes):
        rounds.append(1)
        if len(rounds) > 10:
            monkeypatch.undo()
        return {}

    async with open_shop(dsn) as shop:
        lane = await shop.lane()
        await lane.process(payment(0, "4711"))
        monkeypatch.setattr(Inbox, "_held", always_gone)

        assert await lane.process(payment(1, "4711")) == [Skipped()]
        assert len(rounds) == 11


async def test_a26_a_handler_that_takes_too_long_is_cancelled_and_its_message_quarantined(dsn):
    async def handler(request, tx):
        await insert(request, tx)
        if request.payment_id == "slow":
            await asyncio.Event().wait()

    policy = RetryPolicy(deadline=timedelta(seconds=0.2), attempts=2)
    async with open_shop(dsn, handler, retry=policy) as shop:
        outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "slow"), payment(2, "c"))

        assert [type(outcome) for outcome in outcomes] == [Applied, Quarantined, Applied]
        assert "DeadlineExceeded" in outcomes[1].error
        assert await shop.payments() == ["a", "c"]


async def test_e8_a_collision_of_key_hashes_ends_in_quarantine(dsn, monkeypatch):
    """Two ids with one hash, forced: the readable ids are compared, so that the second never passes for a duplicate."""
    from consumer_idem.inbox.key import Keys

    monkeypatch.setattr(Keys, "hash", lambda self, *args: UUID(int=1))
    async with open_shop(dsn) as shop:
        outcomes = await (await shop.lane()).process(payment(0, "a"), payment(1, "b"))

        assert outcomes[1] == Quarantined(Reason.CONFLICT, outcomes[1].error, ("idempotency key",))
        assert await shop.payments() == ["a"]

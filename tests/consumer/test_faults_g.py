"""The process around the protocol: exceptions that are no ordinary errors, log lines that cannot be written, old versions."""

import asyncio
import logging

import asyncpg
import pytest

from consumer_idem import schema
from consumer_idem.errors import SchemaMissing, SchemaOutdated
from consumer_idem.outcome import Applied, Skipped
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.sql import migrations
from tests.shop import insert, open_shop, payment


@pytest.mark.parametrize("exception", [SystemExit, GeneratorExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_g8_an_exception_that_ends_the_process_leaves_nothing_behind(dsn, exception):
    class Ends(BaseException):
        pass

    async def handler(request, tx):
        await insert(request, tx)
        tx.after_commit(fired.append, request.payment_id)
        if request.payment_id == "p1" and not ended:
            ended.append(1)
            # The loop of the test must survive what would end a process; the way out is the same for every BaseException.
            raise Ends if exception in (SystemExit, KeyboardInterrupt) else exception

    fired, ended = [], []
    async with open_shop(dsn, handler) as shop:
        try:
            outcomes = await (await shop.lane()).process(payment(0), payment(1), payment(2))
        except (Ends, exception):
            assert await shop.payments() == []
            assert fired == []
            here = "datname = current_database() AND state LIKE 'idle in transaction%'"
            assert await shop.rows(f"SELECT count(*) FROM pg_stat_activity WHERE {here}") == [0]
            outcomes = await (await shop.lane()).process(payment(0), payment(1), payment(2))

        assert outcomes == [Applied()] * 3
        assert await shop.payments() == ["p0", "p1", "p2"]
        assert fired == ["p0", "p1", "p2"]


async def test_g7_log_lines_that_cannot_be_written_cost_no_message(dsn, capsys):
    class DiskFull(logging.Handler):
        def emit(self, record):
            try:
                raise OSError(28, "No space left on device")
            except OSError:
                self.handleError(record)

    async def handler(request, tx):
        await insert(request, tx)
        if request.payment_id == "p1":
            raise ValueError("makes the library log")

    full = DiskFull()
    logging.getLogger("consumer_idem").addHandler(full)
    try:
        async with open_shop(dsn, handler) as shop:
            outcomes = await (await shop.lane()).process(payment(0), payment(1), payment(2))
            assert await shop.payments() == ["p0", "p2"]
    finally:
        logging.getLogger("consumer_idem").removeHandler(full)

    assert [type(outcome).__name__ for outcome in outcomes] == ["Applied", "Quarantined", "Applied"]
    assert "No space left" in capsys.readouterr().err


async def test_b23_a_transaction_that_stays_open_for_ever_holds_up_nobody(dsn):
    bystander = await asyncpg.connect(dsn)
    await bystander.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await bystander.fetch("SELECT * FROM idem.inbox")
    async with open_shop(dsn) as shop:
        lane = await shop.lane()
        assert await lane.process(payment(0), payment(1)) == [Applied()] * 2
        assert await lane.process(payment(2, "p0")) == [Skipped()]
    await bystander.close()


async def test_b26_back_off_after_an_outage_is_spread_out():
    from consumer_idem.consumer.handler import RetryPolicy

    # So many that their mean is sure to be near the middle.
    delays = [RetryPolicy().delay(6).total_seconds() for _ in range(5000)]

    assert max(delays) > 2 * sum(delays) / len(delays) * 0.9
    assert min(delays) < max(delays) / 10


async def test_c24_a_handler_that_runs_again_gets_the_same_time_and_uuids_again(dsn):
    seen = []

    async def handler(request, tx):
        seen.append((tx.now(), tx.uuid(), tx.uuid(), tx.publish("out", value={"now": tx.now()}), tx.publish("out", value={})))
        await insert(request, tx)
        if len(seen) == 1:
            raise ValueError("the first time")

    async with open_shop(dsn, handler) as shop:
        assert await (await shop.lane()).process(payment(0)) == [Applied()]

    assert seen[0] == seen[1]
    assert len(set(seen[0][1:])) == 4


class TestRollingDeploy:
    @pytest.fixture
    async def database(self, empty_dsn):
        made = AsyncpgDatabase(empty_dsn)
        await made.open()
        yield made
        await made.close()

    async def change(self, database, sql):
        connection = await database.begin("BEGIN")
        await connection.execute(sql)
        await connection.commit()

    async def test_b27_a_database_without_the_tables_is_refused_with_what_to_do(self, database):
        with pytest.raises(SchemaMissing, match="schema install"):
            await schema.verify(database, "idem")

    async def test_b27_two_processes_install_side_by_side(self, database):
        done = await asyncio.gather(*(schema.install(database, "idem") for _ in range(4)))

        assert sorted(number for numbers in done for number in numbers) == sorted(migrations("idem"))
        await schema.verify(database, "idem")

    async def test_b27_a_build_that_is_newer_than_the_tables_is_refused(self, database):
        await schema.install(database, "idem")
        newest = max(migrations("idem"))
        await self.change(database, f"DELETE FROM idem.schema_version WHERE version = {newest}")

        with pytest.raises(SchemaOutdated, match="schema install"):
            await schema.verify(database, "idem")

    async def test_b27_a_build_that_is_older_than_the_tables_works_as_far_as_they_say(self, database):
        await schema.install(database, "idem")
        newest = max(migrations("idem"))
        await self.change(database, f"INSERT INTO idem.schema_version (version, works_from) VALUES ({newest + 1}, {newest})")
        await schema.verify(database, "idem")
        await self.change(database, f"INSERT INTO idem.schema_version (version, works_from) VALUES ({newest + 2}, {newest + 1})")

        with pytest.raises(SchemaOutdated, match="newer consumer_idem"):
            await schema.verify(database, "idem")

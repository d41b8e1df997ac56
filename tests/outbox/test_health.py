from datetime import timedelta

import asyncpg

from consumer_idem.outbox.health import HealthLimits, OutboxHealth
from consumer_idem.outbox.table import Outbox
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from tests.outbox.scene import record


async def test_no_relay_is_an_alarm(database: AsyncpgDatabase, connection: asyncpg.Connection) -> None:
    report = await OutboxHealth(database).look()
    await connection.execute("ALTER SCHEMA idem RENAME TO other")
    elsewhere = await OutboxHealth(database, schema="other").look()

    assert elsewhere.alarms == ["No relay runs: nothing is published. Start `consumer-idem relay --schema other`."]
    assert report.alarms == ["No relay runs: nothing is published. Start `consumer-idem relay`."]


async def test_c22_parked_records_and_held_topics_are_alarms_for_as_long_as_they_last(
    database: AsyncpgDatabase, connection: asyncpg.Connection
) -> None:
    async with connection.transaction():
        await Outbox().add(connection, [record("t", 1), record("u", 2)])
    await connection.execute(
        "UPDATE idem.outbox SET state = 'x', error = 'too large', created_at = now() - interval '400 days' WHERE topic = 't'"
    )
    await connection.execute("INSERT INTO idem.outbox_relay VALUES (gen_random_uuid(), now() + interval '1 hour')")
    await connection.execute("INSERT INTO idem.outbox_hold (topic, owner, error) SELECT 'u', owner, 'missing' FROM idem.outbox_relay")
    report = await OutboxHealth(database).look()

    assert (report.parked, report.held_topics, report.relays) == (1, ["u: missing"], 1)
    assert len(report.alarms) == 2
    assert "34560" in report.alarms[0]


async def test_c12_the_transaction_that_keeps_dead_rows_is_named(
    dsn: str, database: AsyncpgDatabase, connection: asyncpg.Connection
) -> None:
    await connection.execute("SET application_name = 'nightly report'")
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.execute("SELECT count(*) FROM idem.outbox")
    report = await OutboxHealth(database, limits=HealthLimits(transaction_age=timedelta(0))).look()
    await transaction.rollback()

    assert report.holder is not None
    assert "nightly report" in report.holder.name
    assert any("nightly report" in alarm for alarm in report.alarms)


async def test_transactions_of_other_databases_keep_nothing_from_being_removed(
    database: AsyncpgDatabase, empty_dsn: str, connection: asyncpg.Connection
) -> None:
    other = await asyncpg.connect(empty_dsn, server_settings={"application_name": "elsewhere"})
    transaction = other.transaction(isolation="repeatable_read")
    await transaction.start()
    await other.execute("SELECT count(*) FROM pg_class")
    report = await OutboxHealth(database, limits=HealthLimits(transaction_age=timedelta(0))).look()
    await transaction.rollback()
    await other.close()

    assert not any("keeps dead rows" in alarm for alarm in report.alarms)

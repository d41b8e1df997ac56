"""The faults of section C that one process can provoke; those of processes, brokers and the network are in their own files."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from consumer_idem import failpoint
from consumer_idem.outbox import horizon
from consumer_idem.outbox.backlog import Backlog, Page, Wanted
from consumer_idem.outbox.health import OutboxHealth
from consumer_idem.outbox.horizon import Floor
from consumer_idem.outbox.operators import OutboxDesk, Status
from consumer_idem.outbox.record import record_id
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.testing.services.postgres import default_bin_dir
from consumer_idem.testing.waiting import eventually
from consumer_idem.transaction.short import short
from tests.conftest import MakeTopic
from tests.outbox.scene import QUICK, STEADY, Scene, first_occurrences, record

desk = OutboxDesk()
RARELY = replace(QUICK, full_look=timedelta(hours=1))


@pytest.fixture
async def other(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A second connection."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def _status(database: AsyncpgDatabase) -> list[Status]:
    async with short(database, "idem") as connection:
        return [each.status for each in await desk.list(connection)]


async def _commit_late(scene: Scene, name: str, other: asyncpg.Connection) -> None:
    """Number 1 is added first and committed last; others of its topic are published meanwhile, and 3 of its key comes after it."""
    late = scene.connection.transaction()
    await late.start()
    await scene.outbox.add(scene.connection, record(name, 1))
    for number in (10, 11, 12):
        async with other.transaction():
            await scene.outbox.add(other, record(name, number, key="other"))
        await eventually(lambda: other.fetchval("SELECT count(*) = 0 FROM idem.outbox"))
    await late.commit()
    await scene.add(record(name, 3))


async def test_c1_a_late_committer_is_published_and_before_what_came_after_it(
    scene: Scene, topic: MakeTopic, other: asyncpg.Connection
) -> None:
    name = topic()
    async with scene.relay(settings=RARELY):
        await _commit_late(scene, name, other)
        await scene.drained()

    assert first_occurrences(await scene.published(name))[b"k"] == [1, 3]


async def test_c1_planted_a_cursor_loses_the_late_committer(
    scene: Scene, topic: MakeTopic, other: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cursor(self: Floor, last: int | None) -> None:
        self.value = last or self.value

    monkeypatch.setattr(Floor, "read", cursor)
    name = topic()
    async with scene.relay(settings=RARELY):
        await _commit_late(scene, name, other)
        await scene.drained(left=1)

    assert first_occurrences(await scene.published(name))[b"k"] == [3]


async def test_c2_the_order_is_that_of_the_locks_and_not_of_the_transaction_ids(
    scene: Scene, topic: MakeTopic, other: asyncpg.Connection
) -> None:
    name = topic()
    await scene.connection.execute("CREATE TABLE account (id int PRIMARY KEY, balance int); INSERT INTO account VALUES (1, 0)")
    older = scene.connection.transaction()
    await older.start()
    await scene.connection.execute("SELECT pg_current_xact_id()")
    async with other.transaction():
        await other.execute("UPDATE account SET balance = 1")
        await scene.outbox.add(other, record(name, 1))
    await scene.connection.execute("UPDATE account SET balance = 2")
    await scene.outbox.add(scene.connection, record(name, 2))
    await older.commit()
    async with scene.relay():
        await scene.drained()

    assert await scene.values(name) == [1, 2]


@pytest.mark.parametrize("scene", ["confluent", "aiokafka"], indirect=True)
async def test_c4_three_relays_under_load_keep_the_order_and_send_nothing_twice(scene: Scene, topic: MakeTopic) -> None:
    name = topic(4)
    async with scene.relay(settings=STEADY) as one, scene.relay(settings=STEADY) as two, scene.relay(settings=STEADY) as three:
        owners = "SELECT count(DISTINCT owner) = 3 AND count(owner) = 64 FROM idem.outbox_shard"
        await eventually(lambda: scene.connection.fetchval(owners))
        for start in range(0, 6000, 100):
            await scene.add(*(record(name, number, key=f"k{number % 60}") for number in range(start, start + 100)))
        await scene.drained()
        rows = await scene.connection.fetch("SELECT DISTINCT owner FROM idem.outbox_shard")
    messages = await scene.published(name)

    assert {one.owner, two.owner, three.owner} == {row["owner"] for row in rows}
    assert len(messages) == 6000
    assert all(numbers == sorted(numbers) for numbers in first_occurrences(messages).values())


@pytest.mark.parametrize("scene", ["confluent", "aiokafka"], indirect=True)
async def test_c9_a_record_that_became_too_large_blocks_its_key_and_goes_on_in_its_place_once_the_topic_takes_it(
    scene: Scene, topic: MakeTopic, database: AsyncpgDatabase, kafka_admin: object, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1, {"max.message.bytes": "2000"})
    large = record(name, 2)._replace(value=b" " * 5000 + b"2")
    async with scene.relay():
        await scene.add(record(name, 1), large, record(name, 3), record(name, 4, key="free"), record(name, 5, key=None))
        await scene.drained(left=2)
        await scene.add(record(name, 6))
        await eventually(lambda: _has(database, [Status.PARKED, Status.BLOCKED, Status.BLOCKED]))
        assert {1, 4, 5} == set(await scene.values(name))
        assert any(each.message == "record parked" for each in caplog.records)

        await _set_limit(scene, kafka_admin, name, "1000000")
        await _retry(scene, database)
        await scene.drained()

    assert first_occurrences(await scene.published(name))[b"k"] == [1, 2, 3, 6]


async def test_c9_a_record_without_a_key_blocks_nothing(scene: Scene, topic: MakeTopic, database: AsyncpgDatabase) -> None:
    name = topic(1, {"max.message.bytes": "2000"})
    async with scene.relay():
        await scene.add(record(name, 1, key=None)._replace(value=b" " * 5000), record(name, 2, key=None), record(name, 3, key=None))
        await scene.drained(left=1)

    assert {2, 3} == set(await scene.values(name))
    assert await _status(database) == [Status.PARKED]


async def test_c9_dropping_the_parked_record_frees_its_key(scene: Scene, topic: MakeTopic, database: AsyncpgDatabase) -> None:
    name = topic(1, {"max.message.bytes": "2000"})
    async with scene.relay(settings=RARELY):
        await scene.add(record(name, 1)._replace(value=b" " * 5000), record(name, 2))
        await eventually(lambda: _has(database, [Status.PARKED, Status.BLOCKED]))
        async with short(database, "idem") as connection:
            (parked,) = await desk.list(connection, status=Status.PARKED)
            await desk.drop(connection, [parked.id], operator="test", reason="not needed")
        await scene.drained()

    assert await scene.values(name) == [2]


AT_ONCE = """
CREATE TABLE once (done bool);
CREATE FUNCTION retry_at_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 'x' AND NOT EXISTS (SELECT FROM once) THEN
        INSERT INTO once VALUES (true);
        UPDATE idem.outbox_shard SET change = change + 1 WHERE shard = NEW.shard;
        NEW.state = 'p';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER retry_at_once BEFORE UPDATE ON idem.outbox FOR EACH ROW EXECUTE FUNCTION retry_at_once();
"""


async def test_c9_a_record_that_is_retried_the_moment_it_is_parked_is_seen(
    scene: Scene, topic: MakeTopic, database: AsyncpgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator is a trigger: the retry is there, and read past, before the relay takes note that the record is parked."""
    monkeypatch.setattr(horizon, "_STEP", 1)
    monkeypatch.setattr(failpoint, "active", failpoint.parse("relay.after_settle=sleep:0.5"))
    name = topic(1, {"max.message.bytes": "2000"})
    await scene.connection.execute(AT_ONCE)
    async with scene.relay(settings=RARELY):
        await scene.add(record(name, 1)._replace(value=b" " * 5000), record(name, 2, key="free"))
        await eventually(lambda: scene.connection.fetchval("SELECT count(*) FROM once"))
        for number in range(10):
            await scene.add(record(name, number, key="free"))
        await eventually(lambda: _has(database, [Status.PARKED]))


async def test_c9_a_row_whose_headers_cannot_be_decoded_is_parked(scene: Scene, topic: MakeTopic, database: AsyncpgDatabase) -> None:
    name = topic()
    await scene.add(record(name, 1, headers=[("h", b"1")]), record(name, 2), record(name, 3, key="free"))
    await scene.connection.execute("""UPDATE idem.outbox SET headers = '{"h": 1}' WHERE headers IS NOT NULL""")
    async with scene.relay():
        await eventually(lambda: _has(database, [Status.PARKED, Status.BLOCKED]))

    assert await scene.values(name) == [3]


@pytest.mark.parametrize("scene", ["confluent", "aiokafka"], indirect=True)
async def test_c10_a_missing_topic_holds_its_own_records_only_until_it_is_there(
    scene: Scene, topic: MakeTopic, database: AsyncpgDatabase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reads leave everything behind them as soon as they can, so that what is held is found again for the right reason only.
    monkeypatch.setattr(horizon, "_STEP", 1)
    name, missing = topic(), f"missing-{uuid4().hex[:12]}"
    async with scene.relay(settings=RARELY):
        await scene.add(record(missing, 1), record(name, 2))
        await scene.drained(left=1)
        await eventually(lambda: _has(database, [Status.TOPIC_HELD]))
        assert any(missing in held for held in (await OutboxHealth(database).look()).held_topics)
        await scene.add(record(missing, 3), record(name, 4))
        await scene.drained(left=2)
        topic(name=missing)
        await scene.drained()
        await eventually(lambda: scene.connection.fetchval("SELECT count(*) = 0 FROM idem.outbox_hold"))

    assert await scene.values(missing) == [1, 3]
    assert await scene.values(name) == [2, 4]
    assert any(each.message == "topic held" for each in caplog.records)


async def test_c10_what_a_relay_found_out_about_a_topic_is_known_until_another_relay_looks(
    scene: Scene, topic: MakeTopic, database: AsyncpgDatabase
) -> None:
    missing = f"missing-{uuid4().hex[:12]}"
    async with scene.relay():
        await scene.add(record(missing, 1))
        await eventually(lambda: _has(database, [Status.TOPIC_HELD]))
    assert await _has(database, [Status.TOPIC_HELD])
    assert await scene.connection.fetchval("SELECT count(owner) = 0 FROM idem.outbox_shard")

    topic(name=missing)
    async with scene.relay():
        await scene.drained()
        assert await scene.connection.fetchval("SELECT count(*) = 0 FROM idem.outbox_hold")


async def test_c12_an_old_reader_does_not_make_the_relay_wade_through_dead_rows(
    scene: Scene, topic: MakeTopic, other: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, starts, read = topic(4), [], Backlog.read

    async def note(self: Backlog, wanted: Wanted) -> Page:
        starts.append(wanted.above)
        return await read(self, wanted)

    monkeypatch.setattr(Backlog, "read", note)
    snapshot = other.transaction(isolation="repeatable_read", readonly=True)
    await snapshot.start()
    await other.execute("SELECT count(*) FROM idem.outbox")
    async with scene.relay(settings=RARELY) as relay:
        for start in range(0, 10_000, 500):
            await scene.add(*(record(name, number, key=f"k{number % 100}") for number in range(start, start + 500)))
        await scene.drained()
        await eventually(lambda: scene.connection.fetchval("SELECT bool_and(idle) FROM idem.outbox_relay"))
        starts.clear()
        relay.wake()
        await eventually(lambda: len(starts) > 1)
    await snapshot.rollback()

    # A read that started at the beginning would look at every dead row, which the snapshot keeps from being removed.
    assert min(starts) >= 5000


async def test_c13_a_listener_that_is_cut_costs_a_poll_and_nothing_else(scene: Scene, topic: MakeTopic) -> None:
    name = topic()
    listeners = "pg_stat_activity WHERE application_name = 'consumer_idem listener' AND datname = current_database()"
    kill = f"SELECT count(pg_terminate_backend(pid)) FROM {listeners}"
    async with scene.relay(settings=RARELY):
        await eventually(lambda: scene.connection.fetchval("SELECT bool_and(idle) FROM idem.outbox_relay"))
        assert await scene.connection.fetchval(kill) == 1
        for number in range(3):
            await scene.add(record(name, number))
            await scene.drained()
        await eventually(lambda: scene.connection.fetchval(kill))

    assert await scene.values(name) == [0, 1, 2]


async def test_c13_notifications_are_one_per_transaction_to_an_idle_relay_and_few_under_load(
    scene: Scene, topic: MakeTopic, other: asyncpg.Connection
) -> None:
    name, heard = topic(), 0

    def count(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        nonlocal heard
        heard += payload == ""

    await other.add_listener("idem_outbox", count)
    async with scene.relay():
        await eventually(lambda: scene.connection.fetchval("SELECT bool_and(idle) FROM idem.outbox_relay"))
        async with scene.connection.transaction():
            for number in range(5):
                await scene.outbox.add(scene.connection, record(name, number))
        await scene.drained()
        await other.execute("SELECT 1")
        assert heard == 1

        for start in range(1000):
            await scene.add(*(record(name, start, key=f"k{number}") for number in range(20)))
        await scene.drained()
        await other.execute("SELECT 1")

    assert heard < 500


async def test_c14_the_outbox_of_a_restored_dump_is_published(scene: Scene, topic: MakeTopic, empty_dsn: str, dsn: str) -> None:
    name = topic()
    tools = default_bin_dir()
    if not (tools / "pg_dump").exists():
        pytest.skip("no pg_dump here")
    for number in range(10):
        await scene.add(record(name, number))
    dump = await asyncio.to_thread(subprocess.run, [tools / "pg_dump", dsn], check=True, capture_output=True)
    await asyncio.to_thread(
        subprocess.run, [tools / "psql", "-q", "-v", "ON_ERROR_STOP=1", empty_dsn], check=True, input=dump.stdout, capture_output=True
    )
    restored = Scene(empty_dsn, scene.bootstrap, await asyncpg.connect(empty_dsn))
    async with restored.relay(dsn=empty_dsn):
        await restored.drained()
        await restored.add(record(name, 10))
        await restored.drained()
    await restored.connection.close()

    assert list(range(11)) == await scene.values(name)


async def test_c15_a_handler_that_runs_again_after_a_failover_publishes_the_same_id(scene: Scene, topic: MakeTopic) -> None:
    """The failover: the record was published, then its row and its effect are gone, and the message is handled again."""
    name, message = topic(), uuid4()
    async with scene.relay(settings=replace(QUICK, full_look=timedelta(milliseconds=500))):
        for _ in range(2):
            await scene.add(record(name, 1, message_id=record_id(message, 0, name, 0)))
            await scene.drained()
            await scene.connection.execute("SELECT setval(pg_get_serial_sequence('idem.outbox', 'id'), 1, false)")
            # Ids are given again: nothing of what the relay remembers of them may lead to a wrong deletion.
    first, second = await scene.published(name)

    assert first.id == second.id


async def test_c20_one_parked_key_does_not_delay_the_64_others(scene: Scene, topic: MakeTopic, database: AsyncpgDatabase) -> None:
    name = topic(1, {"max.message.bytes": "2000"})
    poison = record(name, 1, key="poison")._replace(value=b" " * 5000)
    async with scene.relay(settings=RARELY):
        await scene.add(poison, *(record(name, number, key=f"k{number}") for number in range(64)))
        await scene.drained(left=1)
        await scene.add(record(name, 1, key="poison"), *(record(name, 100 + number, key=f"k{number}") for number in range(64)))
        await scene.drained(left=2)

    assert await _status(database) == [Status.PARKED, Status.BLOCKED]
    assert len(await scene.published(name)) == 128


async def _has(database: AsyncpgDatabase, wanted: list[Status]) -> bool:
    return await _status(database) == wanted


async def _retry(scene: Scene, database: AsyncpgDatabase) -> None:
    async with short(database, "idem") as connection:
        parked = await desk.list(connection, status=Status.PARKED)
        await desk.retry(connection, [each.id for each in parked], operator="test", reason="limit raised")


async def _set_limit(scene: Scene, admin: object, name: str, limit: str) -> None:
    """Set it, and wait until the broker goes by it: it has answered before it tells the partition's log."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("max.message.bytes", limit, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()  # type: ignore[attr-defined]
    done.result(10)
    await eventually(lambda: asyncio.to_thread(_is_taken, scene.bootstrap, name, b" " * 5000 + b"0"))


def _is_taken(bootstrap: str, name: str, value: bytes) -> bool:
    from confluent_kafka import Producer

    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, value, b"probe", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(10) == 0
    return errors == [None]

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from consumer_idem.outbox import reader, relay
from consumer_idem.outbox.backlog import Backlog, Epochs, Page, Wanted
from consumer_idem.outbox.entry import Entry, Unfit
from consumer_idem.outbox.relay import RelaySettings
from consumer_idem.sql import migrations
from consumer_idem.testing.supervisor import Supervisor
from consumer_idem.testing.waiting import eventually
from tests.conftest import MakeTopic, Services
from tests.outbox.scene import STEADY, Scene, first_occurrences, record

NEVER = timedelta(hours=1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """What the relays of this process have asked the outbox for."""
    asked, read = [], Backlog.read

    async def note(self: Backlog, wanted: Wanted) -> Page:
        asked.append(wanted)
        return await read(self, wanted)

    monkeypatch.setattr(Backlog, "read", note)
    return asked


async def _shards(scene: Scene) -> dict[str, int]:
    rows = await scene.connection.fetch("SELECT owner, count(*) AS shards FROM idem.outbox_shard GROUP BY owner")
    return {str(row["owner"]): row["shards"] for row in rows}


@pytest.mark.parametrize("scene", ["confluent", "aiokafka"], indirect=True)
async def test_a_record_arrives_with_all_that_it_has(scene: Scene, topic: MakeTopic) -> None:
    name, when = topic(), datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
    headers = [("traceparent", b"00-1-2-3"), ("twice", b"1"), ("twice", b"2"), ("null", None), ("raw", b"\xff\x00")]
    given = record(name, 1, headers=headers, type="applied", message_time=when)
    async with scene.relay():
        await scene.add(given)
        await scene.drained()
    (message,) = await scene.published(name)

    assert (message.key, message.value) == (b"k", b"1")
    assert [
        ("ce_id", str(given.message_id).encode()),
        ("ce_specversion", b"1.0"),
        ("ce_source", b"test"),
        ("ce_type", b"applied"),
        ("ce_time", b"2026-01-02T03:04:05.006000Z"),
        *headers,
    ] == list(message.headers)


@pytest.mark.parametrize("scene", ["confluent", "aiokafka"], indirect=True)
async def test_tombstones_null_keys_and_records_without_type_or_time(scene: Scene, topic: MakeTopic) -> None:
    name = topic()
    bare = record(name, "", key=None)
    tombstone = record(name, "")._replace(value=None)
    async with scene.relay():
        await scene.add(bare, tombstone)
        await scene.drained()
    messages = {message.id: message for message in await scene.published(name)}

    assert (messages[str(bare.message_id)].key, messages[str(bare.message_id)].value) == (None, b"")
    assert (messages[str(tombstone.message_id)].key, messages[str(tombstone.message_id)].value) == (b"k", None)
    times = dict(messages[str(bare.message_id)].headers)
    assert "ce_type" not in times
    assert abs(datetime.fromisoformat((times["ce_time"] or b"").decode()) - datetime.now(UTC)) < timedelta(minutes=1)


async def test_an_idle_relay_is_woken_by_the_commit(scene: Scene, topic: MakeTopic) -> None:
    name = topic()
    # Nothing but the notification wakes it, not even a heartbeat.
    settings = RelaySettings(poll=NEVER, rest=NEVER, full_look=NEVER, lease=timedelta(minutes=5))
    async with scene.relay(settings=settings):
        await eventually(lambda: scene.connection.fetchval("SELECT bool_and(idle) FROM idem.outbox_relay"))
        for number in range(3):
            await scene.add(record(name, number))
            await scene.drained()

    assert await scene.values(name) == [0, 1, 2]


async def test_a_relay_that_sleeps_reads_once_for_what_it_is_notified_of(scene: Scene, topic: MakeTopic, reads: list[Wanted]) -> None:
    name = topic()
    settings = RelaySettings(rest=NEVER, full_look=NEVER, lease=timedelta(minutes=5))
    async with scene.relay(settings=settings) as running:
        await eventually(lambda: running._nap.sound)
        before = len(reads)
        for number in range(5):
            await scene.add(record(name, number))
            await scene.drained(timeout=5)
        assert len(reads) == before + 5


async def test_few_acknowledged_records_are_deleted_together_and_many_at_once(
    scene: Scene, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settled, settle = topic(), list[int](), Backlog.settle

    async def note(self: Backlog, landed: Sequence[Entry], unfit: Sequence[Unfit], epochs: Epochs) -> int:
        settled.append(len(landed))
        return await settle(self, landed, unfit, epochs)

    monkeypatch.setattr(Backlog, "settle", note)
    monkeypatch.setattr(relay, "_SETTLE_EVERY", NEVER.total_seconds())
    async with scene.relay() as running:
        await scene.add(record(name, 0))
        await scene.drained()
        await scene.add(record(name, 1))
        await eventually(lambda: running._window.landed_count == 1)
        assert await scene.left() == 1
        assert settled == [1]
        await scene.add(*(record(name, number) for number in range(2, 101)))
        await scene.drained()
        assert settled == [1, 100]
        await scene.add(record(name, 101))
        await eventually(lambda: running._window.landed_count == 1)

    assert await scene.left() == 0, "closing leaves nothing that is acknowledged"
    assert list(range(102)) == await scene.values(name)


async def test_polling_alone_is_enough(scene: Scene, topic: MakeTopic) -> None:
    name = topic()
    async with scene.relay(listen=False):
        for number in range(3):
            await scene.add(record(name, number))
            await scene.drained()

    assert await scene.values(name) == [0, 1, 2]
    assert not await scene.connection.fetchval("SELECT count(*) FROM idem.outbox_relay WHERE idle")


async def test_a_worker_in_the_same_process_wakes_the_relay(scene: Scene, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic()
    monkeypatch.setattr(reader, "_FIRST_PAUSE", NEVER.total_seconds())
    settings = RelaySettings(poll=NEVER, rest=NEVER, full_look=NEVER, lease=timedelta(minutes=5))
    async with scene.relay(listen=False, settings=settings) as relay:
        await eventually(lambda: scene.connection.fetchval("SELECT count(*) FROM idem.outbox_shard WHERE owner IS NOT NULL"))
        await relay.run_once()
        await scene.add(record(name, 1))
        await relay.run_once()
        assert await scene.left() == 1, "it looked without being woken"
        relay.wake()
        await scene.drained(timeout=5)

    assert await scene.values(name) == [1]


async def test_three_relays_share_the_shards_fairly_and_hand_them_over_when_they_close(scene: Scene, topic: MakeTopic) -> None:
    async def shares(*wanted: int) -> bool:
        return sorted((await _shards(scene)).values()) == sorted(wanted)

    async with scene.relay(settings=STEADY):
        await eventually(lambda: shares(64))
        async with scene.relay(settings=STEADY), scene.relay(settings=STEADY):
            await eventually(lambda: shares(21, 21, 22))
        await eventually(lambda: shares(64), timeout=STEADY.lease.total_seconds() * 0.9)


async def test_a_relay_that_ends_in_order_leaves_no_duplicate(scene: Scene, topic: MakeTopic) -> None:
    name = topic(4)
    async with scene.relay(settings=STEADY):
        for round in range(3):
            async with scene.relay(settings=STEADY):
                await eventually(lambda: scene.connection.fetchval("SELECT count(DISTINCT owner) = 2 FROM idem.outbox_shard"))
                for number in range(40):
                    await scene.add(*(record(name, round * 800 + number * 20 + each, key=f"k{each}") for each in range(20)))
    async with scene.relay():
        await scene.drained()
    messages = await scene.published(name)

    assert len(messages) == 2400
    assert all(numbers == sorted(numbers) for numbers in first_occurrences(messages).values())


async def test_a_relay_process_that_is_asked_to_end_frees_its_shards_at_once(scene: Scene, topic: MakeTopic) -> None:
    name = topic()
    async with Supervisor() as supervisor:
        child = await supervisor.start("-m", "tests.programs.relay", scene.dsn, scene.bootstrap, env={"RELAY_LEASE": "60"})
        await child.line("relay")
        await scene.add(*(record(name, number) for number in range(100)))
        await scene.drained()
        child.terminate()
        await child.line("closed")
        assert await child.wait() == 0

    assert await _shards(scene) == {"None": 64}
    assert list(range(100)) == await scene.values(name)


async def test_through_a_pooler_a_deaf_listener_is_noticed_and_polling_goes_on(
    scene: Scene, topic: MakeTopic, empty_dsn: str, reads: list[Wanted]
) -> None:
    """A proxy that pools transactions takes LISTEN and never delivers: here the listener listens in another database."""
    name = topic()
    settings = RelaySettings(rest=NEVER, full_look=NEVER)
    async with scene.relay(settings=settings, listen_at=empty_dsn):
        await scene.add(record(name, 1))
        await scene.drained()
        # A relay that relied on its listener would be asleep after three.
        before = len(reads)
        await eventually(lambda: len(reads) > before + 6)
        await scene.add(record(name, 2))
        await scene.drained(timeout=5)

    assert await scene.values(name) == [1, 2]


async def test_a_database_that_is_gone_does_not_keep_a_relay_from_closing(services: Services, kafka: str) -> None:
    server = services.postgres()
    connection = await asyncpg.connect(server.dsn())
    for script in migrations("idem").values():
        await connection.execute(script)
    scene = Scene(server.dsn(), kafka, connection)
    async with scene.relay():
        await eventually(lambda: connection.fetchval("SELECT count(*) = 64 FROM idem.outbox_shard WHERE owner IS NOT NULL"))
        await asyncio.to_thread(server.kill9)


async def test_b16_a_database_that_restarts_costs_nothing_but_time(services: Services, topic: MakeTopic, kafka: str) -> None:
    name, server = topic(2), services.postgres()
    connection = await asyncpg.connect(server.dsn())
    for script in migrations("idem").values():
        await connection.execute(script)
    scene = Scene(server.dsn(), kafka, connection)
    async with scene.relay():
        await scene.add(*(record(name, number, key=f"k{number % 10}") for number in range(100)))
        await scene.drained()
        await asyncio.to_thread(server.kill9)
        await asyncio.to_thread(server.start)
        scene.connection = await asyncpg.connect(server.dsn())
        await scene.add(*(record(name, number, key=f"k{number % 10}") for number in range(100, 200)))
        await scene.drained()
        messages = await scene.published(name)
        await scene.connection.close()

    assert {str(number).encode() for number in range(200)} == {message.value for message in messages}
    assert all(numbers == sorted(numbers) for numbers in first_occurrences(messages).values())

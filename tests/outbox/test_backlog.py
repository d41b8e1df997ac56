"""The guards in the relay's statements."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from consumer_idem.outbox import lease as lease_module
from consumer_idem.outbox.backlog import Backlog, Wanted
from consumer_idem.outbox.entry import Entry, Unfit
from consumer_idem.outbox.lease import Lease
from consumer_idem.outbox.record import uuid7
from consumer_idem.outbox.shard import SHARDS
from consumer_idem.outbox.table import Outbox
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from tests.outbox.scene import record

EVERYTHING = Wanted(above=0, change=-1, shards=list(range(SHARDS)), without=[], known=[], records=100, bytes=1 << 20)


class Holder:
    """A relay's lease and its side of the table."""

    def __init__(self, database: AsyncpgDatabase) -> None:
        owner = uuid4()
        self.backlog = Backlog(database, "idem", owner)
        self.lease = Lease(database, "idem", owner, timedelta(minutes=1))

    async def read(self, wanted: Wanted = EVERYTHING) -> list[Entry]:
        page = await self.backlog.read(wanted)
        return [entry for entry in page.entries if isinstance(entry, Entry)]

    async def forget(self, entries: list[Entry], epochs: Mapping[int, int] | None = None) -> None:
        await self.backlog.settle(entries, [], self.lease.epochs if epochs is None else epochs)


@pytest.fixture
async def holder(database: AsyncpgDatabase, connection: asyncpg.Connection) -> Holder:
    """The only relay, with ten records of ten keys."""
    async with connection.transaction():
        await Outbox().add(connection, [record("t", number, key=f"k{number}") for number in range(10)])
    holder = Holder(database)
    await holder.lease.beat(ping=False)
    return holder


async def _left(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM idem.outbox WHERE state = 'p'"))


async def test_what_is_acknowledged_is_deleted(holder: Holder, connection: asyncpg.Connection) -> None:
    await holder.forget((await holder.read())[:4])

    assert await _left(connection) == 6


async def test_c6_under_an_old_epoch_nothing_is_deleted_or_parked(holder: Holder, connection: asyncpg.Connection) -> None:
    entries, before = await holder.read(), dict(holder.lease.epochs)
    await holder.lease.release(range(SHARDS))
    await holder.lease.beat(ping=False)
    await holder.backlog.settle(entries[:5], [Unfit(entry, "too large") for entry in entries[5:]], before)

    assert await _left(connection) == 10


async def test_c5_another_owners_rows_are_not_deleted(holder: Holder, database: AsyncpgDatabase, connection: asyncpg.Connection) -> None:
    thief = Holder(database)
    await thief.backlog.settle(await holder.read(), [], holder.lease.epochs)

    assert await _left(connection) == 10


async def test_c15_an_id_that_was_given_again_after_a_failover_is_not_deleted(holder: Holder, connection: asyncpg.Connection) -> None:
    entries = await holder.read()
    await connection.execute("UPDATE idem.outbox SET message_id = $1 WHERE id = $2", uuid7(), entries[0].id)
    await holder.forget(entries)

    assert await _left(connection) == 1


async def test_a_read_leaves_out_what_it_is_told_to(holder: Holder, connection: asyncpg.Connection) -> None:
    async with connection.transaction():
        await Outbox().add(connection, record("u", 10))
    entries = await holder.read()
    change = (await holder.backlog.read(EVERYTHING)).change
    only = EVERYTHING._replace(
        above=entries[1].id, change=change, without=["u"], known=[entries[4].id], shards=[entry.shard for entry in entries[:7]]
    )

    assert [entries[2].id, entries[3].id, entries[5].id, entries[6].id] == [entry.id for entry in await holder.read(only)]


async def test_a_read_starts_from_the_beginning_once_an_operator_has_changed_something(holder: Holder) -> None:
    page = await holder.backlog.read(EVERYTHING)
    stale = EVERYTHING._replace(above=1 << 40, change=page.change - 1)

    assert len(await holder.read(stale)) == 10
    assert len(await holder.read(stale._replace(change=page.change))) == 0


async def test_a_read_is_limited_in_records_and_in_bytes_but_never_to_nothing(holder: Holder, connection: asyncpg.Connection) -> None:
    await connection.execute("UPDATE idem.outbox SET value = repeat('x', 100)::bytea")

    assert len(await holder.read(EVERYTHING._replace(records=3))) == 3
    assert len(await holder.read(EVERYTHING._replace(bytes=250))) == 2
    assert len(await holder.read(EVERYTHING._replace(bytes=50))) == 1


async def test_open_transactions_that_add_are_seen_as_writers_until_they_end(holder: Holder, connection: asyncpg.Connection) -> None:
    before = await holder.backlog.writers()
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SELECT count(*) FROM idem.outbox")
    reading = await holder.backlog.writers()
    await Outbox().add(connection, record("t", 1))
    adding = await holder.backlog.writers()
    await transaction.rollback()
    after = await holder.backlog.writers()

    assert [len(each.transactions) for each in (before, reading, adding, after)] == [0, 0, 1, 0]
    assert len({each.server for each in (before, reading, adding, after)}) == 1


async def test_the_last_id_taken_is_known_even_before_the_first_and_when_it_is_not_committed(
    database: AsyncpgDatabase, connection: asyncpg.Connection
) -> None:
    backlog = Backlog(database, "idem", uuid4())
    before = await backlog.writers()
    transaction = connection.transaction()
    await transaction.start()
    await Outbox().add(connection, [record("t", 1), record("t", 2)])
    adding = await backlog.writers()
    await transaction.rollback()

    assert [before.last, adding.last] == [0, 2]


async def test_a_relay_that_is_not_heard_of_loses_its_shards_to_the_next(
    database: AsyncpgDatabase, holder: Holder, connection: asyncpg.Connection
) -> None:
    await connection.execute("UPDATE idem.outbox_relay SET lease_until = clock_timestamp() - interval '1 second'")
    successor = Holder(database)
    await successor.lease.beat(ping=False)

    assert len(successor.lease.epochs) == SHARDS
    assert all(successor.lease.epochs[shard] > epoch for shard, epoch in holder.lease.epochs.items())


@pytest.mark.parametrize("members", [2, 3, 5, 60, 70])
async def test_shards_are_shared_fairly_by_any_number(database: AsyncpgDatabase, members: int) -> None:
    leases = [Lease(database, "idem", UUID(int=number), timedelta(minutes=1)) for number in range(members)]
    for _ in range(2):
        for lease in leases:
            await lease.beat(ping=False)
            if lease.surplus():
                await lease.release(lease.surplus())
    for lease in leases:
        await lease.beat(ping=False)
    shares = [len(lease.epochs) for lease in leases]

    assert sum(shares) == SHARDS
    assert max(shares) - min(shares) <= 1


class _Clock:
    def __init__(self, *times: float) -> None:
        self.times = list(times)

    def monotonic(self) -> float:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


async def test_c17_a_lease_is_trusted_from_when_it_was_asked_for(database: AsyncpgDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(100.0, 105.0)
    monkeypatch.setattr(lease_module, "time", clock)
    lease = Lease(database, "idem", uuid4(), timedelta(seconds=10))
    await lease.beat(ping=False)

    clock.times = [108.9]
    assert lease.trusted
    clock.times = [109.1]
    assert not lease.trusted


async def test_statistics_of_an_empty_table_do_not_make_deleting_quadratic(
    database: AsyncpgDatabase, connection: asyncpg.Connection
) -> None:
    await connection.execute("ANALYZE idem.outbox; ANALYZE idem.outbox_shard")
    async with connection.transaction():
        await Outbox().add(connection, [record("t", number, key=f"k{number}") for number in range(20_000)])
    holder = Holder(database)
    await holder.lease.beat(ping=False)
    entries = await holder.read(EVERYTHING._replace(records=20_000, bytes=1 << 30))
    async with asyncio.timeout(10):
        for _ in range(6):
            # A statement that ran five times may be given a plan that does not know its arguments.
            await holder.forget([])
            await holder.forget(entries[:1000])
            del entries[:1000]
        await holder.forget(entries)

    assert await _left(connection) == 0

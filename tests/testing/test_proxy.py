"""The proxy against real servers: what it breaks is broken as it would be on a network, and nothing else is."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from consumer_idem.testing import Fate, LostCommit, PostgresServer, Supervisor, TcpProxy, eventually
from consumer_idem.testing.services.ports import free_port

LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


@pytest.fixture(scope="module")
def server() -> Any:
    with PostgresServer(fsync=False) as server:
        yield server


class Through:
    """A connection through a proxy, and one that goes around it."""

    def __init__(self, proxy: TcpProxy, connection: asyncpg.Connection, direct: asyncpg.Connection, lost: LostCommit) -> None:
        self.proxy = proxy
        self.connection = connection
        self.direct = direct
        self.lost = lost

    async def count(self) -> int:
        return int(await self.direct.fetchval("SELECT count(*) FROM seen"))


async def _through(server: PostgresServer, undo: AsyncExitStack, lost: LostCommit) -> Through:
    proxy = await undo.enter_async_context(TcpProxy(server.address, triggers=[lost]))
    direct = await asyncpg.connect(server.dsn())
    undo.push_async_callback(direct.close)
    await direct.execute("DROP TABLE IF EXISTS seen; CREATE TABLE seen (n int)")
    connection = await asyncpg.connect(server.dsn(via=proxy.address))
    undo.callback(connection.terminate)
    return Through(proxy, connection, direct, lost)


@pytest.fixture
async def through(server: PostgresServer) -> AsyncIterator[Through]:
    async with AsyncExitStack() as undo:
        yield await _through(server, undo, LostCommit())


@pytest.fixture
async def losing_requests(server: PostgresServer) -> AsyncIterator[Through]:
    async with AsyncExitStack() as undo:
        yield await _through(server, undo, LostCommit("request"))


async def simply(connection: asyncpg.Connection) -> None:
    await connection.execute("BEGIN")
    await connection.execute("INSERT INTO seen VALUES (1)")
    await connection.execute("COMMIT")


async def extended(connection: asyncpg.Connection) -> None:
    await connection.execute("BEGIN")
    await connection.fetch("INSERT INTO seen VALUES ($1::int)", 1)
    commit = await connection.prepare("COMMIT")
    await commit.fetch()


async def through_the_driver(connection: asyncpg.Connection) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO seen VALUES (1)")


@pytest.mark.parametrize("work", [simply, extended, through_the_driver])
async def test_a_commit_whose_answer_is_lost_has_happened_and_the_connection_is_gone(through: Through, work: Any) -> None:
    through.lost.arm()

    with pytest.raises(LOST):
        await work(through.connection)

    assert through.lost.fired == 1
    assert await through.count() == 1
    assert through.connection.is_closed()


@pytest.mark.parametrize("work", [simply, extended, through_the_driver])
async def test_a_commit_whose_request_is_lost_has_not_happened(losing_requests: Through, work: Any) -> None:
    losing_requests.lost.arm()

    with pytest.raises(LOST):
        await work(losing_requests.connection)

    assert losing_requests.lost.fired == 1
    assert await losing_requests.count() == 0


async def test_nothing_is_lost_unarmed_and_rollbacks_and_other_statements_never(through: Through) -> None:
    await simply(through.connection)
    through.lost.arm()
    await through.connection.execute("BEGIN")
    await through.connection.execute("INSERT INTO seen VALUES (2)")
    await through.connection.execute("ROLLBACK")

    assert await through.connection.fetchval("SELECT 'COMMIT'") == "COMMIT"
    assert through.lost.fired == 0
    assert await through.count() == 1


async def test_only_as_many_as_were_armed_and_only_each_nth_is_lost(server: PostgresServer, through: Through) -> None:
    through.lost.arm(times=2, every=3)
    lost = []
    for n in range(12):
        connection = await asyncpg.connect(server.dsn(via=through.proxy.address))
        try:
            await simply(connection)
        except LOST:
            lost.append(n)
        connection.terminate()

    assert lost == [2, 5]
    assert await through.count() == 12


async def test_a_connection_can_hang_after_the_loss_instead_of_being_cut(server: PostgresServer) -> None:
    lost = LostCommit(then=Fate.HANG)
    async with TcpProxy(server.address, triggers=[lost]) as proxy:
        connection = await asyncpg.connect(server.dsn(via=proxy.address))
        lost.arm()

        with pytest.raises(TimeoutError):
            await connection.execute("BEGIN; COMMIT", timeout=0.3)

        assert lost.fired == 1
        assert proxy.connections == 1
        connection.terminate()


async def test_cut_resets_every_connection_and_later_ones_work(server: PostgresServer, through: Through) -> None:
    asleep = asyncio.create_task(through.connection.fetchval("SELECT pg_sleep(20)"))
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
    await eventually(lambda: through.direct.fetchval(sleeping))

    assert through.proxy.cut() == 1

    with pytest.raises(LOST):
        await asleep
    again = await asyncpg.connect(server.dsn(via=through.proxy.address))
    assert await again.fetchval("SELECT 1") == 1
    await again.close()


async def test_cut_is_a_reset_and_not_an_orderly_end() -> None:
    server = await asyncio.start_server(_echo, "127.0.0.1", free_port())
    async with server, TcpProxy(server.sockets[0].getsockname()) as proxy:
        reader, writer = await asyncio.open_connection(*proxy.address)
        writer.write(b"x")
        await reader.readexactly(1)

        proxy.cut()

        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()


async def test_refused_is_refused_for_new_connections_only_and_until_accepted_again(server: PostgresServer, through: Through) -> None:
    through.proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        await asyncpg.connect(server.dsn(via=through.proxy.address))
    assert await through.connection.fetchval("SELECT 1") == 1

    await through.proxy.accept()
    again = await asyncpg.connect(server.dsn(via=through.proxy.address))
    await again.close()


async def test_a_server_that_is_away_is_a_reset_and_not_a_hang() -> None:
    async with TcpProxy(("127.0.0.1", free_port())) as proxy:
        with pytest.raises(LOST):
            await asyncpg.connect(f"postgresql://postgres@{proxy.bootstrap}/postgres", timeout=5, ssl=False)


async def test_held_bytes_pass_after_the_release(through: Through) -> None:
    through.proxy.hold()
    asking = asyncio.create_task(through.connection.fetchval("SELECT 7"))
    done, _ = await asyncio.wait([asking], timeout=0.2)

    assert not done
    through.proxy.release()
    assert await asking == 7


async def test_the_delay_is_a_latency_also_for_what_is_sent_while_something_is_under_way() -> None:
    server = await asyncio.start_server(_echo, "127.0.0.1", free_port())
    async with server, TcpProxy(server.sockets[0].getsockname()) as proxy:
        proxy.delay(timedelta(milliseconds=100))
        reader, writer = await asyncio.open_connection(*proxy.address)
        sent: list[float] = []
        took: list[float] = []

        async def receive() -> None:
            for n in range(20):
                await reader.readexactly(10)
                took.append(time.monotonic() - sent[n])

        receiving = asyncio.create_task(receive())
        for _ in range(20):
            sent.append(time.monotonic())
            writer.write(b"x" * 10)
            await asyncio.sleep(0.01)
        await receiving

        assert min(took) >= 0.2
        # If each had waited for the one before it, half of them would have taken more than a second.
        assert sorted(took)[10] < 0.6
        writer.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionResetError):
        while data := await reader.read(100):
            writer.write(data)
    writer.close()


async def test_each_direction_has_its_own_delay(server: PostgresServer, through: Through) -> None:
    through.proxy.to_server = timedelta(milliseconds=500)
    started = time.monotonic()

    await through.connection.fetchval("SELECT 1 + $1::int", 1)

    # Two round trips, since the statement is prepared first; both ways they would take two seconds.
    assert 1 <= time.monotonic() - started < 1.9


async def test_it_leads_to_a_unix_socket_too(server: PostgresServer) -> None:
    folder = server.dsn().partition("host=")[2].partition("&")[0]
    async with TcpProxy(Path(folder) / f".s.PGSQL.{server.port}") as proxy:
        connection = await asyncpg.connect(server.dsn(via=proxy.address))

        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_a_large_result_passes_unharmed(through: Through) -> None:
    through.lost.arm()

    rows = await through.connection.fetch("SELECT n, repeat('x', 1000) AS x FROM generate_series(1, 20000) n")

    assert [row["n"] for row in rows] == list(range(1, 20001))
    assert {len(row["x"]) for row in rows} == {1000}


async def test_as_a_process_of_its_own_it_keeps_the_latency_exactly(server: PostgresServer) -> None:
    port = free_port()
    async with Supervisor() as supervisor:
        target = f"127.0.0.1:{server.port}"
        arguments = ("-m", "consumer_idem.testing.proxy", target, "--listen", str(port), "--latency-ms", "5")
        await (await supervisor.start(*arguments)).line("listening")
        connection = await asyncpg.connect(server.dsn(via=("127.0.0.1", port)))
        times = []
        for _ in range(50):
            started = time.monotonic()
            await connection.execute("SELECT 1")
            times.append(time.monotonic() - started)

        # The quickest of them had the processors for itself, whatever else is going on.
        assert 0.010 <= min(times) < 0.012
        await connection.close()

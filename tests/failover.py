"""A PostgreSQL server with a standby that streams from it, and a proxy through which clients reach whichever leads."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from consumer_idem.sql import migrations
from consumer_idem.testing.proxy import TcpProxy
from consumer_idem.testing.proxy_connection import Trigger
from consumer_idem.testing.services.ports import Address
from consumer_idem.testing.services.postgres import PostgresServer
from consumer_idem.testing.waiting import eventually
from tests.shop import TABLES

_NOT_COPIED = shutil.ignore_patterns("postmaster.*", "pg_wal", "pg_replslot", "pgsql_tmp*", "pg_internal.init*")


class Standby(PostgresServer):
    """Follows `primary`, which it reaches at `link`. It is made by a base backup over SQL, which any server's binaries can do."""

    def __init__(self, primary: PostgresServer, link: Address) -> None:
        follow = {"primary_conninfo": f"host={link[0]} port={link[1]} user=postgres", "wal_retrieve_retry_interval": "100ms"}
        super().__init__(bin_dir=primary._bin_dir, fsync=False, settings=follow)
        self._primary = primary

    def _prepare(self, folder: Path) -> None:
        if self._user is not None:
            shutil.chown(folder, self._user)
        asyncio.run(self._back_up(folder / "data"))

    async def _back_up(self, data: Path) -> None:
        connection = await asyncpg.connect(self._primary.dsn())
        await connection.execute("SELECT pg_backup_start('standby', true)")
        await asyncio.to_thread(self._copy, data)
        label = await connection.fetchval("SELECT labelfile FROM pg_backup_stop(false)")
        await connection.close()
        await asyncio.to_thread(self._make_standby, data, label)

    def _copy(self, data: Path) -> None:
        assert self._primary._folder is not None
        shutil.copytree(self._primary._folder / "data", data, ignore=_NOT_COPIED, copy_function=_copy_if_there)

    def _make_standby(self, data: Path, label: str) -> None:
        for name in ("pg_wal", "pg_replslot"):
            (data / name).mkdir(mode=0o700)
        (data / "backup_label").write_text(label)
        (data / "standby.signal").touch()
        if self._user is not None:
            for path in (data, *data.rglob("*")):
                shutil.chown(path, self._user)


def _copy_if_there(source: str, target: str) -> None:
    """Copy a file of a server at work, which may remove it meanwhile: what it still needs comes back with the WAL."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


@dataclass
class Pair:
    """Clients use `dsn`, whoever leads. Replication is asynchronous: a commit is acknowledged before the standby has it."""

    primary: PostgresServer
    standby: Standby
    link: TcpProxy
    clients: TcpProxy

    @property
    def dsn(self) -> str:
        """Leads to the server that the proxy of the clients names at the moment."""
        return self.primary.dsn(via=self.clients.address)

    async def caught_up(self) -> None:
        """Wait until the standby has all that is committed."""
        there = await value_at(self.primary, "SELECT pg_current_wal_lsn()::text")

        async def here() -> bool:
            return bool(await value_at(self.standby, f"SELECT pg_last_wal_replay_lsn() >= '{there}'"))

        await eventually(here)

    def part(self) -> None:
        """Cut the standby off: what is committed from now on it will not have."""
        self.link.refuse()
        self.link.cut()

    async def promote(self) -> None:
        """Let the standby lead, and lead new connections of clients to it. Those that are open stay where they are."""
        assert await value_at(self.standby, "SELECT pg_promote(true, 30)")
        self.clients.target = self.standby.address


async def value_at(server: PostgresServer, sql: str) -> Any:
    """Return the value that a query gives at this server, whoever leads."""
    connection = await asyncpg.connect(server.dsn())
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@asynccontextmanager
async def open_pair(*triggers: Trigger) -> AsyncIterator[Pair]:
    """A primary with the library's and the shop's tables, and a standby that has them too. The triggers see what clients send."""
    primary = PostgresServer(fsync=False, settings={"wal_keep_size": "256MB"})
    link, clients = TcpProxy(primary.address), TcpProxy(primary.address, triggers=triggers)
    standby: Standby | None = None
    try:
        await asyncio.to_thread(primary.start)
        connection = await asyncpg.connect(primary.dsn())
        for script in (*migrations("idem").values(), TABLES):
            await connection.execute(script)
        await connection.close()
        async with link, clients:
            standby = Standby(primary, link.address)
            await asyncio.to_thread(standby.start)
            pair = Pair(primary, standby, link, clients)
            await pair.caught_up()
            yield pair
    finally:
        for server in (standby, primary):
            if server is not None:
                await asyncio.to_thread(server.close)

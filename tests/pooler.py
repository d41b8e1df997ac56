"""PgBouncer, a proxy that pools transactions: after each one a client's connection may be given another session of the server."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from consumer_idem.testing.services.ports import Address, free_port
from consumer_idem.testing.services.process import ServiceProcess
from consumer_idem.testing.services.server import Server

_KNOWS_PREPARED_STATEMENTS = (1, 21)


@cache
def _program() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@cache
def version() -> tuple[int, int]:
    """Return the version of the PgBouncer that is installed."""
    told = subprocess.run([str(_program()), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", told)
    assert found is not None, told
    return int(found[1]), int(found[2])


def need_pgbouncer(*, prepared_statements: bool) -> None:
    """Skip the test where PgBouncer is not installed, or is too old to know prepared statements."""
    if _program() is None:
        pytest.skip("needs PgBouncer: install the package pgbouncer")
    if prepared_statements and version() < _KNOWS_PREPARED_STATEMENTS:
        pytest.skip(f"needs PgBouncer 1.21 or newer, which knows prepared statements; this is {version()[0]}.{version()[1]}")


@asynccontextmanager
async def open_pooler(dsn: str, *, sessions: int = 4, prepared_statements: int = 0) -> "AsyncIterator[PgBouncer]":
    """A PgBouncer that has all its sessions; skips the test where it cannot be had."""
    need_pgbouncer(prepared_statements=prepared_statements > 0)
    with PgBouncer(dsn, sessions=sessions, prepared_statements=prepared_statements) as pooler:
        async with pooler.every_session():
            pass
        yield pooler


class PgBouncer(Server):
    """Pools transactions over `sessions` sessions of the server of `dsn`. It takes any user, and hands each transaction another session."""

    name = "PgBouncer"

    def __init__(self, dsn: str, *, sessions: int = 4, prepared_statements: int = 0) -> None:
        super().__init__()
        self.port = free_port()
        self._dsn = dsn
        self._sessions = sessions
        self._prepared_statements = prepared_statements
        self._user = "nobody" if os.geteuid() == 0 else None

    @property
    def address(self) -> Address:
        """Where it listens."""
        return ("127.0.0.1", self.port)

    @property
    def dsn(self) -> str:
        """Leads through it to the database of the server's own `dsn`."""
        return f"postgresql://any@127.0.0.1:{self.port}{urlsplit(self._dsn).path}"

    @asynccontextmanager
    async def every_session(self) -> AsyncIterator[Sequence[asyncpg.Connection]]:
        """Yield a connection in an open transaction on each session. The first time, that opens them."""
        async with AsyncExitStack() as undo:
            connections = [await asyncpg.connect(self.dsn, statement_cache_size=0) for _ in range(self._sessions)]
            for connection in connections:
                undo.push_async_callback(connection.close)
                await undo.enter_async_context(connection.transaction())
            yield connections

    def _base(self) -> str:
        return "/tmp"

    def _prepare(self, folder: Path) -> None:
        options = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": self._sessions,
            # The session that has rested longest is next, so that no client gets the same one twice in a row.
            "server_round_robin": 1,
            **({"max_prepared_statements": self._prepared_statements} if version() >= _KNOWS_PREPARED_STATEMENTS else {}),
        }
        lines = ["[databases]", f"* = {self._server()}", "[pgbouncer]", *(f"{name} = {value}" for name, value in options.items())]
        (folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        if self._user is not None:
            shutil.chown(folder, self._user)
            shutil.chown(folder / "pgbouncer.ini", self._user)

    def _server(self) -> str:
        parts = urlsplit(self._dsn)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        found = {
            "host": query.get("host") or parts.hostname,
            "port": query.get("port") or parts.port,
            "user": parts.username,
            "password": parts.password,
        }
        return " ".join(f"{name}={value}" for name, value in found.items() if value is not None)

    def _launch(self, folder: Path) -> ServiceProcess:
        process = ServiceProcess([str(_program()), str(folder / "pgbouncer.ini")], folder / "log", user=self._user)
        process.until(self._answers, self.patience)
        return process

    def _answers(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=1):
                return True
        except OSError:
            return False

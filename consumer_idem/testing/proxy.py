"""A TCP proxy that makes the network fail on purpose: cut, refuse, hold, delay, and lose single answers.

In this process, or as one of its own: `python -m consumer_idem.testing.proxy 127.0.0.1:5432 --listen 15432 --latency-ms 2`.
"""

import argparse
import asyncio
import selectors
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Self

from consumer_idem.testing.proxy_connection import Connection, Trigger
from consumer_idem.testing.services.ports import Address, free_port


class TcpProxy:
    """Listens on `port` of 127.0.0.1 and leads to `target`, a TCP address or the path of a unix socket.

    `to_server` and `to_client` delay each direction by a latency, not by throughput: what is sent together arrives together.
    On asyncio's usual loop a delay may last up to a millisecond longer; as a process of its own it is exact.
    `triggers` are given once, since they must see a connection from its beginning; arm them when the time has come.
    """

    def __init__(self, target: Address | Path, *, port: int | None = None, triggers: Sequence[Trigger] = ()) -> None:
        self.target = target
        self.port = port or free_port()
        self.to_server = timedelta(0)
        self.to_client = timedelta(0)
        self._triggers = triggers
        self._gate = asyncio.Event()
        self._gate.set()
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        return ("127.0.0.1", self.port)

    @property
    def bootstrap(self) -> str:
        """Where it listens, as `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections lead through it now."""
        return len(self._connections)

    def delay(self, latency: timedelta) -> None:
        """Delay each direction by `latency`: a round trip takes twice as much longer."""
        self.to_server = self.to_client = latency

    async def accept(self) -> None:
        """Take new connections; the first call starts the proxy."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, *self.address)

    def refuse(self) -> None:
        """Take no new connections: clients see them refused. Those that are open stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def hold(self) -> None:
        """Let nothing pass, in either direction, until `release()`; connections stay open."""
        self._gate.clear()

    def release(self) -> None:
        """Let what was held pass."""
        self._gate.set()

    def cut(self) -> int:
        """Reset every connection, on both sides; return how many there were."""
        connections = list(self._connections)
        for connection in connections:
            connection.reset()
        return len(connections)

    async def close(self) -> None:
        """Refuse new connections, reset the open ones and wait for their end."""
        self.refuse()
        self.cut()
        await asyncio.gather(*self._connections.values(), return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, self._gate, self._triggers)
        task = asyncio.current_task()
        assert task is not None
        self._connections[connection] = task
        try:
            await connection.run(self.target, lambda: self.to_server, lambda: self.to_client)
        finally:
            del self._connections[connection]


def _address(text: str) -> Address | Path:
    host, _, port = text.rpartition(":")
    return (host, int(port)) if port.isdigit() else Path(text)


async def _run(target: Address | Path, port: int, latency: timedelta) -> None:
    proxy = TcpProxy(target, port=port)
    proxy.delay(latency)
    async with proxy:
        print(f"listening on {proxy.bootstrap}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Run a proxy as a process of its own until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m consumer_idem.testing.proxy", description="A TCP proxy with latency.")
    parser.add_argument("target", type=_address, help="host:port, or the path of a unix socket")
    parser.add_argument("--listen", type=int, metavar="PORT", required=True)
    parser.add_argument("--latency-ms", type=float, default=0.0, help="of each direction")
    given = parser.parse_args()
    # select() waits to the microsecond, the usual epoll only to the millisecond.
    exact = asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector()))
    with exact as runner, suppress(KeyboardInterrupt):
        runner.run(_run(given.target, given.listen, timedelta(milliseconds=given.latency_ms)))


if __name__ == "__main__":
    main()

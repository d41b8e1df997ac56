"""`/live` and `/ready` for an orchestrator, on a port of their own."""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from consumer_idem.errors import SettingRefused

Probe = Callable[[], tuple[bool, dict[str, Any]]]
"""Whether all is well, and what to show."""

_TIMEOUT = 5


class Probes:
    """A small HTTP server: 200 while a probe says yes, 503 while it says no, with JSON that says why."""

    def __init__(self, port: int, probes: dict[str, Probe], *, host: str = "") -> None:
        self.port = port
        self._host = host
        self._probes = {f"/{name}": probe for name, probe in probes.items()}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; raises SettingRefused if the port is taken, or not allowed."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self.port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise SettingRefused(
                f"Health cannot be answered on port {self.port}: {why}. Give each process on this machine a port of its own: "
                "--health-port or CONSUMER_IDEM_HEALTH_PORT."
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _TIMEOUT)
            path = head.split(b" ", 2)[1].decode("ascii", "replace").partition("?")[0]
            writer.write(_answer(*self._ask(path)))
            await asyncio.wait_for(writer.drain(), _TIMEOUT)
        writer.close()

    def _ask(self, path: str) -> tuple[str, dict[str, Any]]:
        probe = self._probes.get(path)
        if probe is None:
            return "404 Not Found", {"known": sorted(self._probes)}
        well, shown = probe()
        return ("200 OK" if well else "503 Service Unavailable"), shown


def _answer(status: str, shown: dict[str, Any]) -> bytes:
    body = json.dumps(shown).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body

"""Listener on asyncpg: one connection of its own that hears NOTIFY and connects again when it is lost."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import asyncpg

log = logging.getLogger(__name__)

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0


class AsyncpgListener:
    """Hears notifications on a connection that belongs to it alone.

    `dsn` must lead to the server itself or to a proxy that pools sessions: one that pools transactions never delivers.
    """

    def __init__(self, dsn: str, *, timeout: float = 10.0) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._task: asyncio.Task[None] | None = None

    async def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        """Begin to hear in the background; a server that does not answer is tried again for ever."""
        self._task = asyncio.create_task(self._keep_hearing(channel, heard))

    async def close(self) -> None:
        """Stop hearing and close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _keep_hearing(self, channel: str, heard: Callable[[str], None]) -> None:
        delay = _FIRST_DELAY
        while True:
            try:
                await self._hear_until_lost(channel, heard)
                delay = _FIRST_DELAY
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("listener cannot connect", extra={"channel": channel, "error": str(error)})
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)

    async def _hear_until_lost(self, channel: str, heard: Callable[[str], None]) -> None:
        lost = asyncio.Event()

        def on_notification(_connection: Any, _pid: int, _channel: str, payload: Any) -> None:
            heard(str(payload))

        connection = await asyncpg.connect(
            self._dsn, timeout=self._timeout, server_settings={"application_name": "consumer_idem listener"}, statement_cache_size=0
        )
        try:
            connection.add_termination_listener(lambda _: lost.set())
            # In a transaction: between its messages, a proxy that pools them would give us a session with another's statement in it.
            async with connection.transaction():
                await connection.add_listener(channel, on_notification)
            await lost.wait()
            log.warning("listener lost its connection", extra={"channel": channel})
        finally:
            connection.terminate()

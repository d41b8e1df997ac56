"""What the relay hears, and whether it hears at all.

A listener can fall silent without an error: a proxy that pools transactions takes LISTEN and never delivers. So every heartbeat
notifies its own relay, and only one that has heard itself lately relies on being notified.
"""

import logging
import time
from collections.abc import Callable
from uuid import UUID

from consumer_idem.ports import Listener

log = logging.getLogger(__name__)

_SHARDS = "shards"


class Ear:
    """Sorts notifications: of records, of free shards, and of our own heartbeat."""

    def __init__(self, listener: Listener | None, schema: str, owner: UUID, patience: float) -> None:
        self._listener = listener
        self._channel = f"{schema}_outbox"
        self._ping = f"ping {owner}"
        self._patience = patience
        self._heard_at: float | None = None
        self._listening = False
        self._listening_since = 0.0
        self._told = False

    @property
    def exists(self) -> bool:
        """Whether there is a listener at all."""
        return self._listener is not None

    @property
    def hears(self) -> bool:
        """Whether we heard ourselves within the last heartbeats."""
        return self._heard_at is not None and time.monotonic() - self._heard_at < self._patience

    async def open(self, on_records: Callable[[], None], on_shards: Callable[[], None]) -> None:
        """Start to listen; from the second time on, only tell whether anything is heard."""
        if self._listener is None:
            return
        if self._listening:
            self._tell()
            return
        self._listening, self._listening_since = True, time.monotonic()

        def heard(payload: str) -> None:
            if payload == self._ping:
                self._heard_at = time.monotonic()
            elif payload == _SHARDS:
                on_shards()
            elif not payload:
                on_records()

        await self._listener.listen(self._channel, heard)

    def _tell(self) -> None:
        """Say it when nothing was heard for too long, and when something is heard again."""
        deaf = not self.hears and time.monotonic() - self._listening_since > self._patience
        if deaf and not self._told:
            log.warning("listener hears nothing, the relay polls", extra={"channel": self._channel})
        elif self._told and not deaf:
            log.info("listener hears again", extra={"channel": self._channel})
        self._told = deaf

    async def close(self) -> None:
        """Stop to listen."""
        if self._listener is not None and self._listening:
            self._listening = False
            await self._listener.close()

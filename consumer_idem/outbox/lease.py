"""Which shards this relay may publish. The database's clock decides how long; we trust a lease from when we asked for it."""

import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from uuid import UUID

from consumer_idem.ports import Database
from consumer_idem.sql import Queries
from consumer_idem.transaction.short import short

_MARGIN = 0.1
"""Share of a lease that is not used, for clocks that do not run alike."""
_HURRY = 0.25
"""Seconds between heartbeats while we have fewer shards than our share, since others are about to release some."""


class Lease:
    """The shards of one relay process.

    Every relay takes free shards up to its fair share and releases what is above it. A relay that has not been heard of for
    a lease loses its row, and with it all its shards.
    """

    def __init__(self, database: Database, schema: str, owner: UUID, duration: timedelta) -> None:
        self.owner = owner
        self.epochs: Mapping[int, int] = {}
        self.share = 0
        self._database = database
        self._schema = schema
        self._sql = Queries("outbox", schema)
        self._duration = duration
        self._trusted_until = 0.0
        self._beat_at = 0.0

    @property
    def trusted(self) -> bool:
        """Whether no other relay can own our shards yet."""
        return time.monotonic() < self._trusted_until

    @property
    def due_in(self) -> float:
        """Seconds until the next heartbeat."""
        return max(0.0, self._beat_at - time.monotonic())

    def hurry(self) -> None:
        """Shards may be free: let the next heartbeat come now."""
        self._beat_at = 0.0

    async def beat(self, *, ping: bool) -> None:
        """Renew the lease and take free shards; `ping` asks for a notification to ourselves."""
        asked_at = time.monotonic()
        async with short(self._database, self._schema, script=self._sql["begin_write"]) as connection:
            await connection.execute(self._sql["heartbeat"], self.owner, self._duration, ping)
            await connection.execute(self._sql["bury"])
            # A third statement: only its new snapshot sees the shards that the second one has freed.
            rows = await connection.fetch(self._sql["take"], self.owner)
        self.epochs = {row["shard"]: row["epoch"] for row in rows if row["shard"] is not None}
        self.share = rows[0]["share"] if rows else 0
        self._trusted_until = asked_at + self._duration.total_seconds() * (1 - _MARGIN)
        self._beat_at = asked_at + (_HURRY if len(self.epochs) < self.share else self._duration.total_seconds() / 3)

    def surplus(self) -> set[int]:
        """Return the shards above our share: they are to be released once nothing of them is in flight."""
        return set(sorted(self.epochs)[self.share :])

    async def release(self, shards: Collection[int]) -> None:
        """Give shards to whoever needs them."""
        async with short(self._database, self._schema, script=self._sql["begin_write"]) as connection:
            await connection.execute(self._sql["release"], self.owner, list(shards))
            await connection.execute(self._sql["announce"])
        self.epochs = {shard: epoch for shard, epoch in self.epochs.items() if shard not in shards}

    async def retire(self) -> None:
        """Give up everything, and be no member any more."""
        self.epochs, self._trusted_until = {}, 0.0
        async with short(self._database, self._schema, script=self._sql["begin_write"]) as connection:
            await connection.execute(self._sql["retire"], self.owner)
            await connection.execute(self._sql["announce"])

    async def sleep(self, idle: bool) -> None:
        """Say whether transactions that add records are to notify us."""
        async with short(self._database, self._schema, script=self._sql["begin_idle"]) as connection:
            await connection.execute(self._sql["idle"], self.owner, idle)

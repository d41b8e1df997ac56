"""The shop's own tables, read and written with the demo's own SQL; and where the workers stand."""

from collections.abc import Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Self
from uuid import UUID

import asyncpg

from consumer_idem.demo.check import Effect, Entry
from consumer_idem.demo.names import Names
from consumer_idem.sql import Queries

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Ledger:
    """One connection of the demo's own."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", names: Names) -> None:
        self._connection = connection
        self._names = names
        self._shop = Queries("demo", names.shop)
        self._library = Queries("demo", names.library)

    @classmethod
    @asynccontextmanager
    async def opened(cls, dsn: str, names: Names) -> "AsyncGenerator[Self]":
        """Connect; close in the end."""
        connection = await asyncpg.connect(dsn)
        try:
            yield cls(connection, names)
        finally:
            await connection.close()

    async def create(self, balances: Mapping[str, Decimal]) -> None:
        """Make the tables and open the accounts."""
        await self._connection.execute(self._shop["create"])
        await self._connection.execute(self._shop["open_accounts"], list(balances), list(balances.values()))

    async def drop(self) -> None:
        """Remove the shop's tables and the library's."""
        await self._connection.execute(self._shop["drop"])
        await self._connection.execute(self._library["drop"])

    # While it runs

    async def settled(self) -> int:
        """Return how many payments were applied or refused so far."""
        return int(await self._connection.fetchval(self._shop["settled"]))

    async def reached(self) -> dict[int, int]:
        """Return the next offset of each partition that a worker has taken."""
        return {row["partition"]: row["next_offset"] for row in await self._reached()}

    async def owners(self) -> dict[int, UUID | None]:
        """Return which process holds each partition."""
        return {row["partition"]: row["owner"] for row in await self._reached()}

    async def _reached(self) -> "list[asyncpg.Record]":
        return list(await self._connection.fetch(self._library["reached"], self._names.requested))

    async def waiting(self) -> int:
        """Return how many records wait in the outbox."""
        return int(await self._connection.fetchval(self._library["waiting"]))

    # Afterwards

    async def effects(self) -> list[Effect]:
        """Return what was applied."""
        return [Effect(row["id"], row["account"], row["amount"]) for row in await self._connection.fetch(self._shop["payments"])]

    async def refusals(self) -> list[str]:
        """Return the ids of what was refused."""
        return [row["payment_id"] for row in await self._connection.fetch(self._shop["refusals"])]

    async def balances(self) -> dict[str, Decimal]:
        """Return what is on each account."""
        return {row["id"]: row["balance"] for row in await self._connection.fetch(self._shop["balances"])}

    async def quarantined(self) -> list[Entry]:
        """Return what is in quarantine."""
        rows = await self._connection.fetch(self._library["quarantined"])
        return [Entry(row["reason"], row["message_id"], tuple(row["fields"]), row["value"]) for row in rows]

"""The incarnations of topics: one that was deleted and made again is another, with offsets of its own."""

from uuid import UUID

from consumer_idem.ports import Connection
from consumer_idem.sql import Queries


class Topics:
    """Small integers for topics. Every method works inside the caller's transaction."""

    def __init__(self, schema: str) -> None:
        self._sql = Queries("inbox", schema)

    async def current(self, connection: Connection, name: str, kafka_id: UUID | None) -> int:
        """Return the topic's newest incarnation; make one if there is none, or if Kafka's id says that it is another."""
        rows = await connection.fetch(self._sql["current_topic"], name)
        if not rows:
            return await self._add(connection, name, 1, kafka_id)
        newest = rows[0]
        if kafka_id is None or newest["kafka_id"] == kafka_id:
            return int(newest["id"])
        if newest["kafka_id"] is None:
            await connection.execute(self._sql["name_topic"], newest["id"], kafka_id)
            return int(newest["id"])
        return await self._add(connection, name, newest["incarnation"] + 1, kafka_id)

    async def renew(self, connection: Connection, name: str, seen: int, kafka_id: UUID | None) -> int:
        """Return the incarnation after the one `seen`: a new one, unless another worker has made it already."""
        newest = (await connection.fetch(self._sql["current_topic"], name))[0]
        if newest["id"] != seen:
            return int(newest["id"])
        return await self._add(connection, name, newest["incarnation"] + 1, kafka_id)

    async def _add(self, connection: Connection, name: str, incarnation: int, kafka_id: UUID | None) -> int:
        await connection.execute(self._sql["add_topic"], name, incarnation, kafka_id)
        return int((await connection.fetch(self._sql["current_topic"], name))[0]["id"])

"""One partition in memory behind the Subscriber port, for moments that no broker produces on demand."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from consumer_idem.consumer.lane import Lane, LaneSettings
from consumer_idem.message import Message, Partition
from consumer_idem.ports import Bounds
from tests.shop import TOPIC, Shop

PARTITION = Partition(TOPIC, 0)


async def _never_paused() -> bool:
    return False


class MemoryLog:
    """Messages of one partition, one position in it, as a Kafka client has. `before` is awaited before each answer."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)
        self.position: int | None = None
        self.stored: int | None = None
        self.polled: list[int] = []
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    async def _reach(self, name: str) -> None:
        if name in self.before:
            await self.before[name]()

    async def start(self, topics: Any, listener: Any) -> None:
        """Nothing to join."""

    async def poll(self, partition: Partition, limit: int, timeout: timedelta) -> Sequence[Message]:
        await self._reach("poll")
        found = [message for message in self.messages if self.position is not None and message.offset >= self.position][:limit]
        if found:
            self.position = found[-1].offset + 1
            self.polled += [message.offset for message in found]
        else:
            await asyncio.sleep(0.01)
        return found

    async def seek(self, partition: Partition, offset: int) -> None:
        self.position = offset

    async def commit(self, offsets: dict[Partition, int]) -> None:
        await self._reach("commit")
        self.stored = offsets[PARTITION]

    async def committed(self, partition: Partition) -> int | None:
        await self._reach("committed")
        return self.stored

    async def bounds(self, partition: Partition) -> Bounds:
        end = self.messages[-1].offset + 1 if self.messages else 0
        return Bounds(0, end, end)

    async def read_to(self, partition: Partition) -> int | None:
        return self.position

    async def topic_id(self, topic: str) -> UUID | None:
        return None

    async def holds(self, partition: Partition) -> bool:
        await self._reach("holds")
        return True

    async def close(self) -> None:
        """Nothing to leave."""


async def make_lane(shop: Shop, log: Any) -> Lane:
    runtime = shop.app.runtime()
    settings = LaneSettings(
        group=shop.app.group,
        owner=shop.owner,
        schema="idem",
        batch_size=2,
        first_start="earliest",
        paused=_never_paused,
        stay_registered=runtime._stay_registered,
        poll_timeout=timedelta(seconds=0.05),
    )
    return Lane(PARTITION, log, runtime.database, await runtime.open(), settings)

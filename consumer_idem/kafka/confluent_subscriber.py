"""Subscriber on confluent-kafka: one thread of ours owns the consumer, the event loop takes from its buffers.

Groups of the classic protocol, eager or cooperative, and of the new one (KIP-848), where the broker assigns.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaException

from consumer_idem.errors import KafkaUnavailable, OffsetCommitFailed, OffsetOutOfRange, PartitionLost, TopicUnknown
from consumer_idem.kafka._announcer import Announcer
from consumer_idem.kafka._confluent_consumer import ConsumerThread
from consumer_idem.kafka._confluent_errors import ours
from consumer_idem.kafka._confluent_lookups import LookUps
from consumer_idem.kafka._confluent_settings import Assignment, Protocol, membership_settings, subscriber_settings
from consumer_idem.kafka._confluent_stream import Stream
from consumer_idem.message import Message, Partition
from consumer_idem.ports import AssignmentListener, Bounds

_ANSWER_WITHIN = 10.0
_COMMIT_WITHIN = 5.0
_BROKERS_HEARTBEAT = timedelta(seconds=5)
_MARGIN = timedelta(milliseconds=200)


class ConfluentSubscriber:
    """One librdkafka consumer of one group. `options` are librdkafka's own names; unsafe ones are refused.

    `protocol="consumer"` is KIP-848's: `assignment` and `session_timeout` are then the broker's to decide. With `instance_id`
    the member is static: when it closes, its partitions wait for it for a session. The listener has half the session time-out
    for each announcement.
    """

    def __init__(  # noqa: PLR0913  # keyword-only settings
        self,
        bootstrap: str,
        group: str,
        *,
        session_timeout: timedelta = timedelta(seconds=30),
        protocol: Protocol = "classic",
        assignment: Assignment = "eager",
        instance_id: str | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        membership = membership_settings(protocol, assignment, session_timeout, instance_id)
        self._settings = subscriber_settings(bootstrap, group, membership, options)
        self._incremental = protocol == "consumer" or assignment == "cooperative-sticky"
        self._session_timeout = session_timeout
        self._heartbeat = _BROKERS_HEARTBEAT if protocol == "consumer" else session_timeout / 10
        self._held: dict[Partition, Stream] = {}
        self._leaving: frozenset[Partition] = frozenset()
        self._thread: ConsumerThread | None = None
        self._closing = False

    async def start(self, topics: Collection[str], listener: AssignmentListener) -> None:
        """Connect, look for the topics and join the group; the listener hears `assigned` when the group has made up its mind."""
        self._announcer = Announcer(listener, self._session_timeout / 2)
        self._look_ups = LookUps(self._settings)
        await asyncio.gather(*map(self._require, topics))
        pause = self._session_timeout.total_seconds()
        self._thread = ConsumerThread(self._settings, self, incremental=self._incremental, pause=pause)
        self._thread.start(topics)

    async def _require(self, topic: str) -> None:
        try:
            await self._look_ups.describe(topic)
        except TopicUnknown as error:
            raise TopicUnknown(f"Topic {topic!r} does not exist in Kafka. Create it, or correct the name in `@app.handler`.") from error
        except KafkaUnavailable as error:
            raise KafkaUnavailable(f"No broker answered at {self._settings['bootstrap.servers']}: {error}") from error

    async def poll(self, partition: Partition, limit: int, timeout: timedelta) -> Sequence[Message]:
        """Return what has been fetched, or wait for it; raise Unreadable where something in Kafka cannot be decoded."""
        stream = self._holding(partition)
        if stream.next is None or stream.empty:
            await stream.changed(timeout)
        thread = self._running()
        if thread.failure is not None:
            raise thread.failure
        if stream.next is None:
            return ()
        try:
            messages = stream.take(limit)
        except OffsetOutOfRange:
            if not await self._in_log(stream, stream.next):
                raise
            return ()
        if messages:
            stream.next = messages[-1].offset + 1
        if stream.hungry:
            thread.wake()
        return messages

    async def _in_log(self, stream: Stream, offset: int) -> bool:
        """Tell whether librdkafka was wrong to find `offset` out of range, and place it there again.

        Once it has failed to parse a batch, it may fetch from anywhere.
        """
        seeks = stream.seeks
        bounds = await self.bounds(stream.partition)
        wrong = bounds.earliest <= offset <= bounds.end
        if wrong and stream.seeks == seeks:
            await asyncio.shield(self.seek(stream.partition, offset))
        return wrong

    async def seek(self, partition: Partition, offset: int) -> None:
        """Let the next poll start at `offset`."""
        stream = self._holding(partition)
        stream.next = None
        await self._running().seek(stream, offset)
        stream.check()
        stream.seek(offset)

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit once, within five seconds; partitions that are not ours any more are left out, and then it raises."""
        kept = tuple((*key, offset) for key, offset in sorted(offsets.items()) if key in self._held or key in self._leaving)
        if kept:
            try:
                await asyncio.wait_for(self._running().commit(kept), _COMMIT_WITHIN)
            except (KafkaException, TimeoutError) as error:
                raise OffsetCommitFailed(f"Kafka did not take the offsets: {error!r}") from error
        if len(kept) < len(offsets):
            raise OffsetCommitFailed("Some of the partitions were given to other members; their offsets were not committed.")

    async def committed(self, partition: Partition) -> int | None:
        """Return the group's committed offset."""
        try:
            offset = await self._running().committed(partition, _ANSWER_WITHIN)
        except KafkaException as error:
            raise ours(error) from error
        return offset if offset >= 0 else None

    async def bounds(self, partition: Partition) -> Bounds:
        """Return the first offset, the end of what is committed, and the end of all."""
        return await self._look_ups.bounds(partition)

    async def read_to(self, partition: Partition) -> int | None:
        """Return where the next message is looked for."""
        return self._holding(partition).read_to

    async def offset_at(self, partition: Partition, time: datetime) -> int | None:
        """Return the first offset that is not older than `time`."""
        return await self._look_ups.offset_at(partition, time)

    async def topic_id(self, topic: str) -> UUID | None:
        """Return the topic's id; None from a broker older than 3.1, or if the topic is gone."""
        return await self._look_ups.topic_id(topic)

    async def holds(self, partition: Partition) -> bool:
        """Wait for a heartbeat's time, in which librdkafka hears and tells that we are out."""
        stream = self._held.get(partition)
        if stream is not None:
            with suppress(PartitionLost):
                await stream.until_lost(self._heartbeat + _MARGIN)
        return stream is not None and self._held.get(partition) is stream

    async def close(self) -> None:
        """Tell the listener, leave the group and end the threads."""
        thread = self._thread
        if thread is not None and not self._closing:
            self._closing = True
            await thread.close()
            self._thread = None

    async def arrive(self, streams: Sequence[Stream]) -> None:
        """Take over what the group has given to us."""
        self._held.update((stream.partition, stream) for stream in streams)
        await self._announcer.assigned([stream.partition for stream in streams])

    async def depart(self, streams: Sequence[Stream], *, lost: bool) -> None:
        """Let go what the group takes away."""
        partitions = [stream.partition for stream in streams]
        for stream in streams:
            self._held.pop(stream.partition, None)
            stream.lose()
        if lost:
            await self._announcer.lost(partitions)
            return
        self._leaving = frozenset(partitions)
        try:
            await self._announcer.revoked(partitions)
        finally:
            self._leaving = frozenset()

    def _holding(self, partition: Partition) -> Stream:
        stream = self._held.get(partition)
        if stream is None:
            raise PartitionLost(f"{partition.topic}/{partition.number} is not assigned to this member.")
        return stream

    def _running(self) -> ConsumerThread:
        if self._thread is None:
            raise KafkaUnavailable("This subscriber is not started, or closed.")
        return self._thread

"""Subscriber on aiokafka: eager rebalances, heartbeats in our event loop, one undecoded fetch kept per partition.

aiokafka fetches a partition again only when all that was fetched has been polled, and keeps it undecoded until then: so a
partition that nobody polls costs `max_partition_fetch_bytes` and no more, and holds up no other.
After every rebalance each partition is a new one: nothing comes from it until `seek`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    InvalidTopicError,
    KafkaError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)

from consumer_idem.errors import KafkaUnavailable, OffsetCommitFailed, PartitionLost, TopicUnknown
from consumer_idem.kafka import _aiokafka_clients, _aiokafka_records, _aiokafka_wire
from consumer_idem.kafka._aiokafka_errors import ours
from consumer_idem.kafka._aiokafka_fetched import Fetched
from consumer_idem.kafka._aiokafka_group import Heartbeat, Membership
from consumer_idem.kafka._aiokafka_settings import subscriber_settings
from consumer_idem.kafka._announcer import Announcer
from consumer_idem.kafka._held import instant, milliseconds
from consumer_idem.kafka.aiokafka_publisher import AiokafkaPublisher
from consumer_idem.message import Message, Partition, message
from consumer_idem.ports import AssignmentListener, Bounds

log = logging.getLogger(__name__)

_ANSWER_WITHIN = 10.0
_COMMIT_WITHIN = 5.0
_PAUSE = 0.2
_BROKEN = (CorruptRecordException, UnsupportedCodecError, RecordTooLargeError)
_MILLISECOND = timedelta(milliseconds=1)
_T = TypeVar("_T")

__all__ = ["AiokafkaPublisher", "AiokafkaSubscriber"]


class AiokafkaSubscriber:
    """One aiokafka consumer of one group. `options` are aiokafka's own arguments; unsafe ones are refused.

    The listener has half the session time-out for each announcement: aiokafka sends no heartbeat while partitions are given
    to us, and the group waits for no member longer than `rebalance_timeout_ms`.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        session_timeout: timedelta = timedelta(seconds=30),
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._settings = subscriber_settings(bootstrap, group, session_timeout, options)
        self._session_timeout = session_timeout
        self._consumer: Any = None
        self._held: dict[Partition, Fetched] = {}
        self._leaving: frozenset[Partition] = frozenset()
        self._closing = False

    async def start(self, topics: Collection[str], listener: AssignmentListener) -> None:
        """Connect, look for the topics and join the group; the listener hears `assigned` when the group has made up its mind."""
        self._announcer = Announcer(listener, self._session_timeout / 2)
        self._consumer = AIOKafkaConsumer(**self._settings)
        self._membership = Membership(self._consumer)
        self._consumer._client.on_fetched = self._fetched
        await _aiokafka_clients.start(self._consumer, self._consumer._client, _ANSWER_WITHIN, self._settings["bootstrap_servers"])
        try:
            await self._require(topics)
        except BaseException:
            await self._consumer.stop()
            raise
        self._consumer.subscribe(list(topics), listener=_Rebalances(self))

    async def _require(self, topics: Collection[str]) -> None:
        found = await self._answer(_aiokafka_wire.describe(self._consumer._client, topics))
        for topic in topics:
            error = found[topic].error
            if error is not None and issubclass(error, UnknownTopicOrPartitionError | InvalidTopicError):
                raise TopicUnknown(f"Topic {topic!r} does not exist in Kafka. Create it, or correct the name in `@app.handler`.")
            if error is not None and not error.retriable:
                raise ours(error(topic))

    async def poll(self, partition: Partition, limit: int, timeout: timedelta) -> Sequence[Message]:
        """Return what has been fetched, or wait for it; raise Unreadable where something in Kafka cannot be decoded."""
        held = self._holding(partition)
        if held.next is None:
            await held.changed(timeout)
            return ()
        seeks = held.seeks
        messages, next_offset = await self._read(held, held.next, limit, timeout)
        held.check()
        if held.seeks != seeks:
            return ()
        held.next = next_offset
        return messages

    async def _read(self, held: Fetched, start: int, limit: int, timeout: timedelta) -> tuple[Sequence[Message], int]:
        try:
            records = await self._records(held, start, limit, timeout)
        except PartitionLost:
            raise
        except _BROKEN as error:
            return await self._read_by_hand(held, start, limit, error)
        except (KafkaError, ConsumerStoppedError) as error:
            raise ours(error) from error
        # Decoders raise what they like: UnicodeDecodeError for a header name, a decompressor's own error.
        except Exception as error:
            return await self._read_by_hand(held, start, limit, error)
        return _messages(held, records), records[-1].offset + 1 if records else start

    async def _records(self, held: Fetched, start: int, limit: int, timeout: timedelta) -> Sequence[ConsumerRecord]:
        partition = TopicPartition(*held.partition)
        if held.astray:
            self._consumer.seek(partition, start)
            held.astray = False
        fetched: Mapping[TopicPartition, Sequence[ConsumerRecord]] = await self._consumer.getmany(partition, max_records=limit)
        if fetched or not timeout:
            return fetched.get(partition, ())
        waiting = asyncio.ensure_future(self._consumer.getmany(partition, timeout_ms=timeout // _MILLISECOND, max_records=limit))
        # getmany waits for the end of a rebalance without a time-out.
        try:
            fetched = await held.unless_changed(waiting) or {}
            return fetched.get(partition, ())
        except asyncio.CancelledError:
            # It may have taken records that nobody gets to see now.
            held.astray = True
            raise

    async def _read_by_hand(self, held: Fetched, start: int, limit: int, error: Exception) -> tuple[Sequence[Message], int]:
        log.warning("aiokafka could not decode", extra={"partition": held.partition, "offset": start, "error": repr(error)})
        partition = TopicPartition(*held.partition)
        raw = await self._answer(_aiokafka_wire.fetch(self._consumer._client, partition, start))
        messages, next_offset = _aiokafka_records.read(held.partition, raw.data, start, limit, raw.aborted)
        held.check()
        self._consumer.seek(partition, next_offset)
        return messages, next_offset

    async def seek(self, partition: Partition, offset: int) -> None:
        """Let the next poll start at `offset`."""
        held = self._holding(partition)
        self._consumer.seek(TopicPartition(*partition), offset)
        self._consumer.resume(TopicPartition(*partition))
        held.seek(offset)

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit once, within five seconds; partitions that are not ours any more are left out, and then it raises."""
        try:
            async with asyncio.timeout(_COMMIT_WITHIN):
                await self._membership.ready()
                kept = {TopicPartition(*key): offset for key, offset in offsets.items() if key in self._held or key in self._leaving}
                await self._membership.commit(kept)
        except (KafkaError, TimeoutError) as error:
            raise OffsetCommitFailed(f"Kafka did not take the offsets: {error!r}") from error
        if len(kept) < len(offsets):
            raise OffsetCommitFailed("Some of the partitions were given to other members; their offsets were not committed.")

    async def committed(self, partition: Partition) -> int | None:
        """Return the group's committed offset."""
        offset: int | None = await self._answer(self._consumer.committed(TopicPartition(*partition)))
        return offset

    async def bounds(self, partition: Partition) -> Bounds:
        """Return the first offset, the end of what is committed, and the end of all."""
        return await self._answer(_aiokafka_wire.bounds(self._consumer._client, TopicPartition(*partition)))

    async def read_to(self, partition: Partition) -> int | None:
        """Return where the next message is looked for."""
        held = self._holding(partition)
        if held.next is None or held.astray:
            return held.next
        position: int = await self._answer(self._consumer.position(TopicPartition(*partition)))
        return position

    async def offset_at(self, partition: Partition, time: datetime) -> int | None:
        """Return the first offset that is not older than `time`."""
        key = TopicPartition(*partition)
        found = (await self._answer(self._consumer.offsets_for_times({key: milliseconds(time)})))[key]
        return found.offset if found is not None else None

    async def topic_id(self, topic: str) -> UUID | None:
        """Return the topic's id; None from a broker older than 3.1, or if the topic is gone."""
        return (await self._answer(_aiokafka_wire.describe(self._consumer._client, [topic])))[topic].id

    async def holds(self, partition: Partition) -> bool:
        """Send a heartbeat now instead of waiting for the next; raise KafkaUnavailable if none is answered within a session."""
        held = self._held.get(partition)
        end = time.monotonic() + self._session_timeout.total_seconds()
        while held is not None and time.monotonic() < end:
            answer = await self._answer(self._membership.heartbeat())
            if answer is not Heartbeat.UNANSWERED:
                return answer is Heartbeat.MEMBER and self._held.get(partition) is held
            await asyncio.sleep(_PAUSE)
        if held is None:
            return False
        raise KafkaUnavailable

    async def close(self) -> None:
        """Tell the listener, leave the group and disconnect, in bounded time."""
        if self._closing or self._consumer is None:
            return
        self._closing = True
        await self._give_up(list(self._held))
        if not await _aiokafka_clients.stop(self._consumer, self._consumer._client, _ANSWER_WITHIN):
            log.warning("the consumer did not stop in time; its connections were cut")

    async def _arrive(self, partitions: Collection[Partition]) -> None:
        if self._closing:
            return
        self._consumer.pause(*(TopicPartition(*partition) for partition in partitions))
        self._held = {partition: Fetched(partition) for partition in partitions}
        await self._announcer.assigned(partitions)

    async def _give_up(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._held.pop(partition).lose()
        if self._membership.dropped():
            await self._announcer.lost(partitions)
            return
        self._leaving = frozenset(partitions)
        try:
            await self._announcer.revoked(partitions)
        finally:
            self._leaving = frozenset()

    def _fetched(self, partition: TopicPartition, offset: int, data: bytes) -> None:
        """Hear what the client has fetched from `offset` on, before aiokafka takes it, or drops it since it is not wanted any more."""
        held = self._held.get(_partition(partition))
        if held is not None and self._membership.position(partition) == offset:
            held.learn(data)

    def _holding(self, partition: Partition) -> Fetched:
        held = self._held.get(partition)
        if held is None:
            raise PartitionLost(f"{partition.topic}/{partition.number} is not assigned to this member.")
        return held

    async def _answer(self, call: Awaitable[_T]) -> _T:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await call
        except TimeoutError as error:
            raise KafkaUnavailable from error
        except KafkaError as error:
            raise ours(error) from error


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka tells of partitions that are lost as of revoked ones; the membership knows which it was."""

    def __init__(self, subscriber: AiokafkaSubscriber) -> None:
        self._subscriber = subscriber

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._subscriber._give_up([held for held in map(_partition, revoked) if held in self._subscriber._held])

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._subscriber._arrive([_partition(partition) for partition in assigned])


def _partition(partition: TopicPartition) -> Partition:
    return Partition(partition.topic, partition.partition)


def _messages(held: Fetched, records: Sequence[ConsumerRecord]) -> Sequence[Message]:
    if not records:
        return ()
    first, last = held.leader_epoch(records[0].offset), held.leader_epoch(records[-1].offset)
    # The epoch never falls along a log, so that between two that are equal there is no other.
    return [_message(record, first if first == last else held.leader_epoch(record.offset)) for record in records]


def _message(it: ConsumerRecord, leader_epoch: int | None) -> Message:
    return message(it.topic, it.partition, it.offset, it.key, it.value, it.headers, instant(it.timestamp), leader_epoch)

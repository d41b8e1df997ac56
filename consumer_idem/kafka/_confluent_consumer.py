"""The thread that owns the Consumer: it polls all the time, keeps the buffers filled, and is where rebalances happen.

Whatever moves a partition (assign, seek, pause, resume) is done here and nowhere else, so that a message that is taken from
librdkafka always belongs to the assignment and the seek under which it is kept.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer_idem.errors import ConsumerIdemError, KafkaRefused, OffsetOutOfRange
from consumer_idem.kafka._confluent_commits import Commits, Offsets, settle
from consumer_idem.kafka._confluent_errors import ours
from consumer_idem.kafka._confluent_stream import Stream
from consumer_idem.message import Partition

log = logging.getLogger(__name__)

_WAIT = 0.01
_NUDGE = 0.001
_BATCH = 500

_UNREADABLE = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED, KafkaError.INVALID_MSG})
# An error among the messages does not say of itself that it is fatal.
_FATAL = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID})


class Group(Protocol):
    """Whom the thread tells, on the event loop; it waits for the end of each call before the rebalance goes on."""

    async def arrive(self, streams: Sequence[Stream]) -> None:
        """These are ours now."""

    async def depart(self, streams: Sequence[Stream], *, lost: bool) -> None:
        """These are about to go, or gone already."""


class ConsumerThread:
    """Owns one Consumer. `incremental` says how the group's protocol changes an assignment.

    One that has given up for good is followed by a new one after `pause` seconds.
    """

    def __init__(self, settings: Mapping[str, Any], group: Group, *, incremental: bool, pause: float) -> None:
        self._group = group
        self._incremental = incremental
        self._pause = pause
        self._topics: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._streams: dict[Partition, Stream] = {}
        self._closing = False
        self._resting = False
        self._fatal = False
        self._telling = False
        self._commits = Commits(self._loop)
        self.failure: ConsumerIdemError | None = None
        """What keeps the client from its work as a whole, until messages come again."""
        self.last_error = ""
        logger = logging.getLogger("consumer_idem.kafka.librdkafka")
        self._settings = {**settings, "error_cb": self._on_error, "on_commit": self._commits.answered, "logger": logger}
        self._consumer = Consumer(self._settings)
        self._thread = threading.Thread(target=self._run, name="consumer-idem-subscriber", daemon=True)

    def start(self, topics: Collection[str]) -> None:
        """Join the group."""
        self._topics = list(topics)
        self._join()
        self._thread.start()

    def _join(self) -> None:
        self._consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    async def seek(self, stream: Stream, offset: int) -> None:
        """Let `stream` start at `offset`, with an empty buffer."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._commands.put(partial(self._seek, stream, offset, done))
        await done

    async def commit(self, offsets: Offsets) -> None:
        """Commit once; raise KafkaException if it is not taken. It may wait longer than its caller wants to."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._commands.put(lambda: self._commits.commit(self._consumer, offsets, done, asynchronous=not self._telling))
        await done

    async def committed(self, partition: Partition, timeout: float) -> int:
        """Return the group's committed offset, below zero if there is none; raise KafkaException if nobody tells in time."""
        answer: asyncio.Future[int] = self._loop.create_future()
        deadline = time.monotonic() + timeout

        def ask() -> None:
            # Nothing else may be kept waiting for long, so it is asked again in its turn.
            if not self._commits.look_up(self._consumer, partition, answer, last=time.monotonic() > deadline):
                self._commands.put(ask)

        self._commands.put(ask)
        return await answer

    def wake(self) -> None:
        """Look for more at once: somebody has taken what was kept."""
        if self._resting:
            self._resting = False
            self._commands.put(_nothing)

    async def close(self) -> None:
        """Leave the group, which tells what goes, and end the thread."""
        self._closing = True
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)
        else:
            await asyncio.to_thread(self._consumer.close)

    def _run(self) -> None:
        while not self._closing:
            try:
                self._serve(self._rest())
                self._balance()
                self._fetch()
                if self._fatal:
                    self._begin_anew()
            # Nobody else polls: the member would be thrown out of its group without a word.
            except Exception:
                log.exception("the consumer's thread goes on after an error")
                time.sleep(_WAIT)
        self._consumer.close()
        # Who still waits is told that it is closed.
        self._serve()

    def _rest(self) -> float:
        """Return how long to leave what has been fetched in librdkafka's queue: no time while a lane may run out of work.

        That queue is one for all partitions and has a limit of its own, behind which librdkafka stops fetching by itself. So a
        partition must be paused only if its lane is slower than the others.
        """
        self._resting = bool(self._streams) and not any(stream.hungry for stream in self._streams.values())
        return _WAIT if self._resting else 0.0

    def _serve(self, wait: float = 0.0) -> None:
        with suppress(Empty):
            command = self._commands.get(timeout=wait) if wait else self._commands.get_nowait()
            command()
            # Those that come meanwhile, or come back, must not keep the thread from polling.
            for _ in range(self._commands.qsize()):
                self._commands.get_nowait()()

    def _seek(self, stream: Stream, offset: int, done: asyncio.Future[None]) -> None:
        if self._streams.get(stream.partition) is stream:
            stream.restart(offset)
            self._place(stream)
        self._loop.call_soon_threadsafe(settle, done, None)

    def _balance(self) -> None:
        for stream in self._streams.values():
            if stream.paused and stream.expected is not None and stream.drained:
                self._place(stream)
            elif not stream.paused and stream.full:
                self._consumer.pause([stream.position])
                stream.paused = True

    def _place(self, stream: Stream) -> None:
        """Let librdkafka go on exactly behind what is kept here, whatever it thinks it had delivered."""
        position = stream.position
        try:
            self._consumer.seek(position)
        except KafkaException:
            # It gave up fetching: it starts a partition only by an assignment, never again by a seek.
            self._assign_again(stream)
        self._consumer.resume([position])
        stream.paused = False
        # The thread of the leader's connection may sleep for a second when all was paused. Any request wakes it.
        with suppress(KafkaException):
            self._consumer.get_watermark_offsets(position, _NUDGE)

    def _assign_again(self, stream: Stream) -> None:
        if self._incremental:
            self._consumer.incremental_unassign([stream.position])
            self._consumer.incremental_assign([stream.position])
            return
        self._consumer.assign([each.position for each in self._streams.values()])
        self._consumer.pause([each.position for each in self._streams.values() if each.paused])

    def _fetch(self) -> None:
        first = self._consumer.poll(0 if self._resting else _WAIT)
        if first is None:
            return
        stirred: set[Stream] = set()
        # poll() returns with the first message, consume() only with the last. Kept one after the other: a rebalance inside of
        # consume() gives the partition a new stream, in which what was polled before it has no place.
        self._keep((first,), stirred)
        self._keep(self._consumer.consume(1 if self._resting else _BATCH, 0), stirred)
        if stirred:
            self._loop.call_soon_threadsafe(_stir, stirred)

    def _keep(self, records: Sequence[Any], stirred: set[Stream]) -> None:
        streams: Mapping[Any, Stream] = self._streams
        for record in records:
            # A plain tuple finds what a Partition does, and costs less.
            stream = streams.get((record.topic(), record.partition()))
            error = record.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                if stream is not None:
                    stream.end = record.offset() or 0
            elif error is not None:
                self._take_error(stream, error)
            elif stream is not None and stream.add(record):
                stirred.add(stream)

    def _take_error(self, stream: Stream | None, error: KafkaError) -> None:
        self.last_error = str(error)
        fault = ours(error)
        if stream is not None and error.code() in _UNREADABLE:
            stream.break_off(str(error))
        elif stream is not None and isinstance(fault, OffsetOutOfRange):
            stream.break_off(fault)
        else:
            log.warning("the consumer reported an error", extra={"error": str(error)})
            self._fatal = self._fatal or error.fatal() or error.code() in _FATAL
            if isinstance(fault, KafkaRefused) or self._fatal:
                self.failure = fault
            return
        self._loop.call_soon_threadsafe(stream.stir)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        streams = [Stream(Partition(partition.topic, partition.partition)) for partition in partitions]
        positions = [stream.position for stream in streams]
        (consumer.incremental_assign if self._incremental else consumer.assign)(positions)
        # Not before: an assignment takes the pause away. What was fetched in between is dropped, since nobody expects it.
        consumer.pause(positions)
        self._streams.update((stream.partition, stream) for stream in streams)
        self._commits.member_id = consumer.memberid()
        self.failure = None
        self._tell(self._group.arrive(streams))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._depart(partitions, lost=False)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._depart(partitions, lost=True)

    def _depart(self, partitions: list[TopicPartition], *, lost: bool) -> None:
        keys = [Partition(partition.topic, partition.partition) for partition in partitions]
        streams = [self._streams.pop(key) for key in keys if key in self._streams]
        self._tell(self._group.depart(streams, lost=lost))
        if self._incremental:
            self._consumer.incremental_unassign(partitions)
        else:
            self._consumer.unassign()

    def _tell(self, news: Coroutine[Any, Any, None]) -> None:
        """Wait until the listener has heard it; seeks go on meanwhile, since it may want them."""
        told = asyncio.run_coroutine_threadsafe(news, self._loop)
        self._telling = True
        while not told.done():
            self._serve(_WAIT)
        self._telling = False
        if told.exception() is not None:
            log.error("the assignment could not be announced", exc_info=told.exception())

    def _begin_anew(self) -> None:
        """Tell that everything is lost, and join again with another client: librdkafka has given up.

        It does so when another member has taken our instance id. Taken back at once, the two would go on for ever.
        """
        log.error("the client gave up and joins the group anew; is its group.instance.id given twice?", extra={"error": self.last_error})
        streams = list(self._streams.values())
        self._streams.clear()
        if streams:
            self._tell(self._group.depart(streams, lost=True))
        end = time.monotonic() + self._pause
        while time.monotonic() < end and not self._closing:
            self._serve(_WAIT)
        if not self._closing:
            self._consumer.close()
            self._consumer = Consumer(self._settings)
            self._fatal = False
            self._join()

    def _on_error(self, error: KafkaError) -> None:
        self.last_error = str(error)
        if error.fatal():
            self._fatal = True
            self.failure = ours(error)
        log.log(logging.ERROR if error.fatal() else logging.DEBUG, "librdkafka reported an error", extra={"error": str(error)})


def _stir(streams: set[Stream]) -> None:
    for stream in streams:
        stream.stir()


def _nothing() -> None:
    pass

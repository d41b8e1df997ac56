"""The thread that owns the Producer. Batches come through a queue, answers go back to the event loop.

librdkafka makes one request of what waits for a partition when it is flushed. So a batch is handed over whole, with a
linger time that never ends by itself, and flushed: it is written as one or not at all, which the order of a line rests on.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from consumer_idem.kafka._confluent_errors import failure
from consumer_idem.kafka._confluent_settings import connection_settings
from consumer_idem.kafka._line import Answers
from consumer_idem.message import OutboxRecord
from consumer_idem.ports import FailureKind, NotDelivered

log = logging.getLogger(__name__)

_SLICE = 0.02
_IDLE = 1.0
_CLOSE_WITHIN = 10.0
_PATIENCE = 20.0
"""Seconds without any answer after which it is worth a look whether this Producer alone gets none."""
_REACH_WITHIN = 3.0
_NOT_SENT = NotDelivered(FailureKind.RETRIABLE, "not sent")


class _Batch:
    """One batch, and the answers that have come."""

    def __init__(self, topic: str, partition: int, records: Sequence[OutboxRecord]) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self.left = len(records)
        self.answers: list[int | NotDelivered] = [_NOT_SENT] * self.left

    def report(self, at: int, error: KafkaError | None, message: Message) -> None:
        """Take the delivery report of one record."""
        self.settle(at, failure(error) if error is not None else message.offset() or 0)

    def settle(self, at: int, answer: int | NotDelivered) -> None:
        """Take the answer for one record."""
        self.answers[at] = answer
        self.left -= 1


class ProducerThread:
    """Owns one Producer at a time: it makes another one after a fatal error of librdkafka, or when it has lost all brokers."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, "error_cb": self._on_error, "logger": logging.getLogger("consumer_idem.kafka.librdkafka")}
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Batch | None] = SimpleQueue()
        self._open: list[_Batch] = []
        self._fatal = False
        self._look_at = 0.0
        self._give_up_at: float | None = None
        self.last_error = ""
        self.producer = Producer(self._settings)
        self._thread = threading.Thread(target=self._run, name="consumer-idem-publisher", daemon=True)
        self._thread.start()

    async def send(self, topic: str, partition: int, records: Sequence[OutboxRecord]) -> Answers:
        """Send one batch to one partition and wait for its answers, however long that takes."""
        batch = _Batch(topic, partition, records)
        self._queue.put(batch)
        return await batch.future

    async def close(self) -> None:
        """Wait for what is under way, ten seconds at most, and end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while self._give_up_at is None or self._open:
            self._take()
            if self._open:
                self.producer.flush(_SLICE)
                self._finish()
            else:
                self.producer.poll(0)
            if self._fatal or self._given_up() or self._is_lost():
                self._renew()

    def _take(self) -> None:
        """Hand over what waits in the queue; sleep there when nothing is under way."""
        try:
            batch = self._queue.get_nowait() if self._open else self._queue.get(timeout=_IDLE)
            if not self._open:
                self._look_at = time.monotonic() + _PATIENCE
            while batch is not None:
                self._open.append(batch)
                self._produce(batch)
                batch = self._queue.get_nowait()
        except Empty:
            return
        self._give_up_at = time.monotonic() + _CLOSE_WITHIN

    def _produce(self, batch: _Batch) -> None:
        for at, record in enumerate(batch.records):
            try:
                self.producer.produce(
                    batch.topic,
                    record.value,
                    record.key,
                    batch.partition,
                    on_delivery=partial(batch.report, at),
                    headers=list(record.headers),
                )
            except (KafkaException, BufferError, TypeError, ValueError) as error:
                batch.settle(at, _refusal(error))
                for behind in range(at + 1, len(batch.records)):
                    batch.settle(behind, _NOT_SENT)
                return

    def _finish(self) -> None:
        done = [batch for batch in self._open if batch.left == 0]
        if done:
            self._open = [batch for batch in self._open if batch.left > 0]
            self._look_at = time.monotonic() + _PATIENCE
            self._loop.call_soon_threadsafe(_resolve, done)

    def _given_up(self) -> bool:
        return self._give_up_at is not None and bool(self._open) and time.monotonic() > self._give_up_at

    def _is_lost(self) -> bool:
        """Tell whether this Producer reaches no broker while another client does.

        librdkafka forgets all brokers, for good, when a broker that starts tells it that the cluster has none:
        https://github.com/confluentinc/librdkafka/issues/5301.
        """
        if not self._open or time.monotonic() < self._look_at:
            return False
        self._fatal = not _reaches(self.producer) and _reaches(AdminClient(connection_settings(self._settings)))
        self._look_at = time.monotonic() + _PATIENCE
        if self._fatal:
            log.warning("librdkafka has lost all brokers; going on with a new producer", extra={"error": self.last_error})
        return self._fatal

    def _renew(self) -> None:
        """Answer what is under way with failures that are sent again, and go on with a new Producer."""
        self.producer.purge()
        self.producer.flush(_CLOSE_WITHIN)
        self._finish()
        if self._fatal:
            self._fatal = False
            self.producer = Producer(self._settings)

    def _on_error(self, error: KafkaError) -> None:
        self.last_error = str(error)
        self._fatal = self._fatal or error.fatal()
        log.log(logging.ERROR if error.fatal() else logging.DEBUG, "librdkafka reported an error", extra={"error": str(error)})


def _reaches(client: Producer | AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=_REACH_WITHIN).brokers)
    except KafkaException:
        return False


def _refusal(error: Exception) -> NotDelivered:
    if isinstance(error, KafkaException):
        return failure(error.args[0])
    # The client's queue is full, or the record holds what cannot be encoded.
    return NotDelivered(FailureKind.RETRIABLE if isinstance(error, BufferError) else FailureKind.RECORD, repr(error))


def _resolve(batches: Sequence[_Batch]) -> None:
    for batch in batches:
        if not batch.future.done():
            batch.future.set_result(batch.answers)

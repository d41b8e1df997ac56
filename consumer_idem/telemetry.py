"""Every span, metric and trace header of the library; the only import of OpenTelemetry.

Recorded once per transaction, not per message. Without an SDK nothing is recorded, and a message's trace context is passed
on to what its handler publishes as it came.
"""

import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from opentelemetry import metrics, trace
from opentelemetry.propagate import get_global_textmap
from opentelemetry.trace import Span, SpanKind

from consumer_idem.message import Header, Message, Partition
from consumer_idem.outcome import Outcome

_TRACE_HEADERS = frozenset({"traceparent", "tracestate", "baggage"})

_tracer = trace.get_tracer("consumer_idem")
_meter = metrics.get_meter("consumer_idem")

_messages = _meter.create_counter("consumer_idem.messages", unit="{message}", description="Messages by what became of them")
_transactions = _meter.create_counter("consumer_idem.transactions", unit="{transaction}", description="Transactions by their result")
_duration = _meter.create_histogram("consumer_idem.transaction.duration", unit="s", description="From begin to the confirmed commit")
_size = _meter.create_histogram("consumer_idem.transaction.messages", unit="{message}", description="Messages per transaction")
_lanes = _meter.create_counter(
    "consumer_idem.lane.events", unit="{event}", description="Lanes taken, fenced, rewound, behind the log's start"
)
_lag = _meter.create_gauge("consumer_idem.lag", unit="{message}", description="Offsets between a lane and the end of its partition")
_held_back = _meter.create_gauge(
    "consumer_idem.held_back", unit="{message}", description="Offsets from the first open transaction of a producer on"
)
_offsets = _meter.create_counter("consumer_idem.offsets.refused", unit="{commit}", description="Offset commits that Kafka did not take")
_held = _meter.create_counter("consumer_idem.outbox.events", unit="{event}", description="Outbox records delivered, parked, held")


@contextmanager
def transaction(messages: Sequence[Message]) -> Generator["Transaction"]:
    """Measure one transaction over some messages; tell it what came of it before the block ends."""
    topic = messages[0].topic
    with _tracer.start_as_current_span(f"process {topic}", kind=SpanKind.CONSUMER) as span:
        measured = Transaction(topic)
        yield measured
        if span.is_recording():
            _describe(span, messages, measured.result)
    attributes = {"topic": topic, "result": measured.result}
    _transactions.add(1, attributes)
    _duration.record(time.perf_counter() - measured.began, attributes)
    _size.record(len(messages), attributes)


def _describe(span: Span, messages: Sequence[Message], result: str) -> None:
    """Name the transaction's topic, size and result, and link it with the traces of its sampled messages."""
    span.set_attribute("messaging.system", "kafka")
    span.set_attribute("messaging.destination.name", messages[0].topic)
    span.set_attribute("messaging.batch.message_count", len(messages))
    span.set_attribute("consumer_idem.result", result)
    for message in messages:
        carrier = {name: value.decode("ascii", "replace") for name, value in message.headers if name == "traceparent" and value}
        if carrier and carrier["traceparent"].endswith("-01"):
            context = trace.get_current_span(get_global_textmap().extract(carrier)).get_span_context()
            if context.is_valid:
                span.add_link(context)


class Transaction:
    """What is told about the transaction that is measured."""

    __slots__ = ("_topic", "began", "result")

    def __init__(self, topic: str) -> None:
        self.began = time.perf_counter()
        self.result = "raised"
        self._topic = topic

    def ended(self, result: str, outcomes: Sequence[Outcome] = ()) -> None:
        """Say what came of it, and of its messages if it was committed."""
        self.result = result
        for kind, count in Counter(map(type, outcomes)).items():
            _messages.add(count, {"topic": self._topic, "outcome": kind.__name__.lower()})


def lane(event: str, partition: Partition) -> None:
    """Count what happened to a lane.

    It is taken, fenced, rewound, lost-range, made-anew, truncated, unreadable, stuck, near-retention, held-back.
    """
    _lanes.add(1, {"topic": partition.topic, "event": event})


def lag(partition: Partition, messages: int, held_back: int) -> None:
    """Record how many offsets lie before a lane, and how many more an open transaction keeps from being read."""
    attributes: dict[str, str | int] = {"topic": partition.topic, "partition": partition.number}
    _lag.set(messages, attributes)
    _held_back.set(held_back, attributes)


def offsets_refused() -> None:
    """Count an offset commit that Kafka did not take."""
    _offsets.add(1)


def outbox(event: str, count: int, topic: str) -> None:
    """Count outbox records of a topic: delivered, parked, held."""
    _held.add(count, {"topic": topic, "event": event})


def recording() -> bool:
    """Tell whether the present span is recorded."""
    return trace.get_current_span().is_recording()


def trace_headers(message: Message | None) -> Sequence[Header]:
    """Return the headers that connect a record with the trace of its message; of the present span if that has none."""
    passed = tuple([header for header in message.headers if header[0] in _TRACE_HEADERS]) if message is not None and message.headers else ()
    if passed or not recording():
        return passed
    carrier: dict[str, str] = {}
    get_global_textmap().inject(carrier)
    return tuple((name, value.encode()) for name, value in carrier.items())

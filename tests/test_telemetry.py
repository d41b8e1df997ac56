"""What an operator's tools see: traces that go on behind the outbox, and counts of what became of messages."""

import json

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from consumer_idem.outcome import Applied
from tests.shop import open_shop, payment

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def publishing(request, tx):
    tx.publish("out", value={"id": request.payment_id}, headers={"own": "1"})


async def stored_headers(shop):
    return [dict(json.loads(text)) for text in await shop.rows("SELECT headers::text FROM idem.outbox ORDER BY id")]


@pytest.fixture(scope="module")
def recorded():
    """Spans and metrics as an SDK sees them; set once, since OpenTelemetry allows no second provider in a process."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    return spans, reader


async def test_a_messages_trace_goes_on_in_what_its_handler_publishes(dsn):
    async with open_shop(dsn, publishing) as shop:
        await (await shop.lane()).process(payment(0, headers=[("traceparent", PARENT.encode())]), payment(1))

        first, second = await stored_headers(shop)
        assert first == {"traceparent": PARENT, "own": "1"}
        assert second["own"] == "1"


async def test_a_header_of_the_users_own_is_not_sent_twice(dsn):
    async def handler(request, tx):
        tx.publish("out", value=None, headers={"traceparent": "mine"})

    async with open_shop(dsn, handler) as shop:
        await (await shop.lane()).process(payment(0, headers=[("traceparent", PARENT.encode())]))

        assert await shop.rows("SELECT headers::text FROM idem.outbox") == ['[["traceparent", "mine"]]']


async def test_a_transaction_is_one_span_linked_with_the_traces_of_its_messages(dsn, recorded):
    spans, reader = recorded
    async with open_shop(dsn, publishing) as shop:
        lane = await shop.lane()
        spans.clear()
        assert await lane.process(payment(0, headers=[("traceparent", PARENT.encode())]), payment(1)) == [Applied()] * 2

        (span,) = spans.get_finished_spans()
        assert span.name == "process payments.requested"
        assert span.attributes["messaging.batch.message_count"] == 2
        assert span.attributes["consumer_idem.result"] == "settled"
        assert [f"{link.context.trace_id:032x}" for link in span.links] == [PARENT.split("-")[1]]
        _, second = await stored_headers(shop)
        assert second["traceparent"].split("-")[1] == f"{span.context.trace_id:032x}"
    counts = {
        (metric.name, point.attributes.get("outcome")): point.value
        for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if hasattr(point, "value")
    }
    assert counts["consumer_idem.messages", "applied"] >= 2

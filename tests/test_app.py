"""What is refused when a handler is declared, and what an operator hears when it fails."""

import logging
from datetime import timedelta

import pytest

from consumer_idem import App, RetryLater
from consumer_idem.errors import DeclarationError
from consumer_idem.outcome import Quarantined
from consumer_idem.settings import Settings
from consumer_idem.wiring import make_publisher, make_subscriber
from tests.shop import checkout, open_shop, payment


async def payload_only(request):
    """Lacks the tx."""


def plain(request, tx):
    """Is no coroutine function."""


@pytest.mark.parametrize(("handler", "why"), [(payload_only, "two arguments"), (plain, "async def")])
def test_a_handler_that_cannot_be_called_is_refused_when_it_is_declared(handler, why):
    with pytest.raises(DeclarationError, match=why):
        App(group="shop").handler("t", source=checkout(), name="h")(handler)


@pytest.mark.parametrize("declare", ["handler", "batch_handler"])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"source": checkout()}, "handler for topic 't' needs a name that never changes: name="),
        ({"source": checkout(), "name": ""}, "handler for topic 't' needs a name that never changes: name="),
        ({"name": "h"}, "Handler 'h' needs to know what comes in: source=checkout, where checkout = Source"),
        ({"name": "h", "source": "checkout"}, "Handler 'h': source= must be a Source, not str"),
        ({}, "needs a name"),
    ],
)
def test_what_a_declaration_lacks_is_named_with_what_to_write(declare, given, why):
    with pytest.raises(DeclarationError, match=why):
        getattr(App(group="shop"), declare)("t", **given)


def test_a_decorator_without_anything_is_refused_and_not_silent():
    with pytest.raises(DeclarationError, match=r"needs a topic: write @app\.handler"):

        @App(group="shop").handler
        async def handler(request, tx): ...


def test_retry_later_takes_a_duration_with_its_unit():
    with pytest.raises(TypeError, match="timedelta"):
        RetryLater(30)
    assert RetryLater(timedelta(seconds=30)).after == timedelta(seconds=30)


async def test_a_handler_that_fails_is_logged_with_its_traceback_once_and_its_quarantine_each_time(dsn, caplog):
    async def handler(request, tx):
        raise KeyError("no such depot")

    caplog.set_level(logging.WARNING)
    async with open_shop(dsn, handler) as shop:
        lane = await shop.lane()
        for first in (0, 2):
            outcomes = await lane.process(payment(first), payment(first + 1))
            assert [type(outcome) for outcome in outcomes] == [Quarantined] * 2

    failed = [record for record in caplog.records if record.message == "handler failed"]
    assert [bool(record.exc_info) for record in failed] == [True] + [False] * 11
    quarantined = [record for record in caplog.records if record.message == "messages quarantined"]
    assert [(record.reason, record.messages) for record in quarantined] == [("attempts-used-up", 2)] * 2


async def test_a_record_key_of_another_type_is_refused_where_it_is_published(dsn):
    async def handler(request, tx):
        with pytest.raises(TypeError, match="key of a record"):
            tx.publish("out", key=7, value=None)

    async with open_shop(dsn, handler) as shop:
        await (await shop.lane()).process(payment(0))


class TestKafkaOptions:
    def test_options_of_either_client_are_taken_and_unknown_ones_named(self):
        both = Settings(kafka_options={"fetch_max_bytes": 100_000, "linger_ms": 5, "request_timeout_ms": 50_000})
        make_subscriber(both, "g")
        make_publisher(both)
        with pytest.raises(DeclarationError, match="fetch_max_byte"):
            make_subscriber(Settings(kafka_options={"fetch_max_byte": 1}), "g")

    def test_tls_needs_no_code(self):
        make_subscriber(Settings(kafka_options={"security_protocol": "SSL"}), "g")

    def test_secrets_are_not_shown(self):
        assert "hunter2" not in repr(Settings(kafka_options={"sasl_plain_password": "hunter2", "linger_ms": 5}))

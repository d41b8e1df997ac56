"""Log lines carry their fields, and never a password."""

import json
import logging
import sys

import pytest

from consumer_idem.cli.logs import FieldsFormatter, JsonFormatter, masked
from consumer_idem.message import Partition, Position


def record(message: str, *args: object, raised: BaseException | None = None, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord(
        "consumer_idem.consumer.lane", logging.INFO, "lane.py", 1, message, args, raised and (type(raised), raised, None)
    )
    made.created = 1.5
    vars(made).update(extra)
    return made


def test_a_line_is_the_constant_message_and_its_fields() -> None:
    line = FieldsFormatter().format(record("lane starts", partition=Partition("payments", 3), offset=17))

    assert line == "1970-01-01T00:00:01.500Z INFO    consumer_idem.consumer.lane lane starts partition=payments/3 offset=17"


def test_values_with_blanks_or_line_ends_are_quoted() -> None:
    line = FieldsFormatter().format(record("message failed", error="no such\ntable", empty=""))

    assert line.endswith(r'message failed error="no such\ntable" empty=""')


def test_json_is_one_object_per_line() -> None:
    line = JsonFormatter().format(record("%s failed", "lane", position=Position("payments", 3, 17), failures=2, raised=ValueError("x")))

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "info",
        "logger": "consumer_idem.consumer.lane",
        "message": "lane failed",
        "position": "payments/3/17",
        "failures": 2,
        "exception": "ValueError: x",
    }


SECRETS = [
    "postgresql://shop:hunter2@db/shop",
    "postgresql://shop:hunter2@@db/shop",
    "connect to postgres://:hunter2@db:5432/shop?a=b failed",
    "postgresql://db/shop?user=shop&password=hunter2&sslmode=require",
    "host=db password=hunter2 dbname=shop",
    "host=db password='hunter2' dbname=shop",
    '{"sasl.password": "hunter2"}',
    "{'sasl_plain_password': 'hunter2', 'client_id': 'x'}",
    "SASL_PASSWORD: hunter2",
]


@pytest.mark.parametrize("text", SECRETS)
def test_no_password_passes(text: str) -> None:
    assert "hunter2" not in masked(text)
    assert "hunter2" not in FieldsFormatter().format(record("failed", dsn=text))
    assert "hunter2" not in FieldsFormatter().format(record("failed %s", text))
    assert "hunter2" not in FieldsFormatter().format(record("failed", raised=ValueError(text)))
    assert "hunter2" not in JsonFormatter().format(record("failed", dsn=text))
    assert "hunter2" not in JsonFormatter().format(record("failed", raised=ValueError(text)))


@pytest.mark.parametrize("text", ["postgresql://shop@db/shop", "http://host:8080/path", "mail me@example.org", "2026-01-31T12:00:00Z 3@17"])
def test_what_holds_no_password_stays_as_it_is(text: str) -> None:
    assert masked(text) == text


def test_a_traceback_stands_below_its_line() -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        made = record("handler failed")
        made.exc_info = sys.exc_info()

    lines = FieldsFormatter().format(made).splitlines()

    assert lines[0].endswith("handler failed")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: wrong"

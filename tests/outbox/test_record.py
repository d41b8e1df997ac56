import time
from datetime import datetime
from uuid import RFC_4122, UUID

import pytest

from consumer_idem.errors import RecordRefused
from consumer_idem.outbox.record import PendingRecord, record_id, uuid7

KEY = UUID("018f4d3c-9d1e-7c3a-8e55-1b2f4ad0c111")


def test_a_repeated_run_gives_the_same_record_id() -> None:
    assert UUID("22681e7a-7b99-8615-b4c1-b1f9f636fefb") == record_id(KEY, 0, "payments.applied", 0)
    assert UUID("c8756f42-8ebc-885a-b19a-b44807d2f55c") == record_id(KEY, 0, "payments.applied", 1)


def test_every_part_of_a_record_id_counts() -> None:
    ids = [
        record_id(key, generation, topic, ordinal)
        for key in (KEY, uuid7())
        for generation in (0, 1)
        for topic in ("a", "1/a")
        for ordinal in (0, 1)
    ]

    assert len(ids) == len(set(ids))
    assert {(id.version, id.variant) for id in ids} == {(8, RFC_4122)}


def test_uuid7_ascends_with_the_time_and_is_marked_as_version_7() -> None:
    before = time.time_ns()
    first = uuid7()
    after = time.time_ns()
    time.sleep(0.002)
    second = uuid7()

    assert (first.version, first.variant) == (7, "specified in RFC 4122")
    assert first < second
    assert before // 1_000_000 <= first.int >> 80 <= after // 1_000_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"topic": "a/b"},
        {"topic": ".."},
        {"source": ""},
        {"source": "a\x00b"},
        {"type": "\ud800"},
        {"headers": [("ce_id", b"1")]},
        {"headers": [("\ud800", b"1")]},
        {"message_time": datetime(2026, 1, 1)},  # noqa: DTZ001 - the naive time is the point
    ],
)
def test_what_postgresql_or_kafka_would_not_take_is_refused_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(RecordRefused):
        PendingRecord(**{"topic": "t", "source": "s", **wrong})  # type: ignore[arg-type]

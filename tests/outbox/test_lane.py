from datetime import timedelta
from uuid import UUID

from consumer_idem.message import OutboxRecord
from consumer_idem.outbox.entry import Entry
from consumer_idem.outbox.lane import Backoff, Lane
from consumer_idem.ports import Delivered, FailureKind, NotDelivered

SECOND = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=8))
SENT = Delivered(0, 0)
FAILED = NotDelivered(FailureKind.RETRIABLE, "time-out")
TOO_LARGE = NotDelivered(FailureKind.RECORD, "too large")
MISSING = NotDelivered(FailureKind.TOPIC, "missing")


def _lane(*keys: str | None) -> Lane:
    lane = Lane("t", SECOND)
    for id, key in enumerate(keys, 1):
        lane.admit(Entry(id, 0, OutboxRecord(id=UUID(int=id), topic="t", key=key and key.encode(), value=b"v"), 1))
    return lane


def _fly(lane: Lane, now: float = 0.0, limit: int = 10) -> list[int]:
    return [entry.id for entry in lane.take_off(limit, now)]


def test_one_flight_at_a_time() -> None:
    lane = _lane("a", "b", "c")

    assert _fly(lane, limit=2) == [1, 2]
    assert _fly(lane) == []


def test_a_failed_record_is_first_again_and_its_key_waits_while_others_go_on() -> None:
    lane = _lane("a", "b", "a", "b")
    _fly(lane, limit=2)
    landing = lane.land([FAILED, SENT], 0.0)

    assert [entry.id for entry in landing.acknowledged] == [2]
    assert _fly(lane, now=0.1) == [4]

    lane.land([SENT], 0.1)

    assert _fly(lane, now=2.0) == [1, 3]


def test_a_flight_of_which_nothing_arrived_stops_the_lane_for_growing_delays() -> None:
    lane = _lane("a", "b")
    delays = []
    now = 0.0
    for _ in range(8):
        assert _fly(lane, now=now, limit=1)
        lane.land([FAILED], now)
        assert _fly(lane, now=now) == []
        due = lane.due_at()
        assert due is not None
        delays.append(due - now)
        now = due

    assert 0.5 <= delays[0] <= 1
    assert 4 <= delays[-1] <= 8


def test_an_unfit_record_takes_its_key_out_and_the_rest_goes_at_once() -> None:
    lane = _lane("a", "b", "a", "c")
    _fly(lane, limit=2)
    landing = lane.land([TOO_LARGE, FAILED], 0.0)

    assert [unfit.entry.id for unfit in landing.unfit] == [1]
    assert _fly(lane, now=0.0) == [2, 4]


def test_an_unfit_record_without_a_key_blocks_nothing() -> None:
    lane = _lane(None, None, "a")
    _fly(lane, limit=1)
    lane.land([TOO_LARGE], 0.0)

    assert _fly(lane) == [2, 3]


def test_a_topic_that_takes_nothing_leaves_memory() -> None:
    lane = _lane("a", "b", "c")
    _fly(lane, limit=2)
    landing = lane.land([MISSING, MISSING], 0.0)

    assert landing.topic_error == "missing"
    assert not lane
    assert lane.bytes == 0


def test_what_is_in_flight_stays_when_shards_are_lost() -> None:
    lane = _lane("a", "b", "c")
    _fly(lane, limit=1)
    lane.keep(())

    assert [entry.id for entry in lane.entries()] == [1]
    assert lane.bytes == 1

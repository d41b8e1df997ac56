import pytest

from consumer_idem.outbox import horizon as module
from consumer_idem.outbox.horizon import Floor, Horizon, Writers


def _writers(*names: str, last: int = 100, server: int = 1) -> Writers:
    return Writers(server, last, frozenset(names))


@pytest.fixture(autouse=True)
def _every_id_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEP", 1)


def test_a_horizon_passes_when_all_that_were_writing_have_ended() -> None:
    horizon = Horizon()
    horizon.observe(_writers("a", "b"))
    horizon.observe(_writers("b", "c"))

    assert not horizon.passed

    horizon.observe(_writers("c", "d"))

    assert horizon.passed


def test_a_server_that_restarted_counts_its_transactions_anew() -> None:
    horizon = Horizon()
    horizon.observe(_writers("3/1"))
    horizon.observe(_writers("3/1", server=2))

    assert not horizon.passed


def test_the_floor_rises_with_the_first_read_after_the_writers_have_ended() -> None:
    floor = Floor()
    floor.observe(_writers("late", last=7))
    floor.read(9)
    floor.observe(_writers("later", last=12))

    assert floor.value == 0

    floor.read(None)

    assert floor.value == 7


def test_the_floor_rises_only_to_where_the_read_came() -> None:
    floor = Floor()
    floor.observe(_writers(last=70))
    floor.read(30)

    assert floor.value == 30


def test_a_read_from_the_start_does_not_let_the_floor_sink() -> None:
    floor = Floor()
    floor.observe(_writers(last=70))
    floor.read(None)
    floor.observe(_writers(last=70))
    floor.read(30)

    assert floor.value == 70


def test_another_server_puts_the_floor_back() -> None:
    floor = Floor()
    floor.observe(_writers(last=70))
    floor.read(None)
    floor.observe(_writers(last=20, server=2))

    assert floor.value == 0


def test_a_sequence_that_was_set_back_puts_the_floor_back() -> None:
    floor = Floor()
    floor.observe(_writers(last=70))
    floor.read(None)
    floor.observe(_writers(last=20))

    assert floor.value == 0


def test_a_floor_that_was_reset_forgets_what_it_waited_for() -> None:
    floor = Floor()
    floor.observe(_writers(last=7))
    floor.reset()
    floor.read(None)

    assert floor.value == 0
    assert floor.unknown


def test_the_writers_are_not_asked_for_while_nothing_is_read() -> None:
    floor = Floor()
    floor.observe(_writers(last=7))
    floor.read(None)

    assert not floor.wants_writers

    floor.read(8)

    assert floor.wants_writers

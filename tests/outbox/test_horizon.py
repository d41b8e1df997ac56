from consumer_idem.outbox.horizon import Floor, Horizon, Writers


def _writers(*names: str, server: int = 1) -> Writers:
    return Writers(server, frozenset(names))


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


def test_the_floor_rises_one_read_after_the_writers_have_ended() -> None:
    floor = Floor()
    floor.read(7)
    floor.observe(_writers("late"))
    floor.read(9)
    floor.observe(_writers())

    assert floor.value == 0

    floor.read(None)

    assert floor.value == 7


def test_the_floor_rises_only_to_where_the_read_came() -> None:
    floor = Floor()
    floor.read(70)
    floor.observe(_writers())
    floor.read(30)

    assert floor.value == 30


def test_a_floor_that_was_reset_forgets_what_it_waited_for() -> None:
    floor = Floor()
    floor.read(7)
    floor.observe(_writers())
    floor.reset()
    floor.read(None)

    assert floor.value == 0
    assert not floor.wants_writers

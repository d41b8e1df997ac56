"""Deferred writes: few statements, and no key's order broken."""

from hypothesis import given
from hypothesis import strategies as st

from consumer_idem.transaction.deferred import Deferred

WRITES = st.lists(st.tuples(st.sampled_from("UVW"), st.none() | st.sampled_from("abc")), max_size=40)


def collected(writes):
    deferred = Deferred()
    deferred.add([(sql, (number,), key) for number, (sql, key) in enumerate(writes)])
    return deferred.take()


def test_many_messages_need_one_statement_each():
    groups = collected([(sql, None if sql == "U" else f"k{n}") for n in range(100) for sql in "UV"])

    assert [sql for sql, _ in groups] == ["U", "V"]
    assert [len(rows) for _, rows in groups] == [100, 100]


def test_rows_are_sorted_by_key_so_that_two_lanes_lock_hot_rows_in_one_order():
    assert collected([("U", "b"), ("U", "a"), ("U", "c")]) == [("U", [(1,), (0,), (2,)])]


@given(WRITES)
def test_every_write_goes_out_once_and_writes_of_one_key_keep_their_order(writes):
    sent = [number for _, rows in collected(writes) for (number,) in rows]

    assert sorted(sent) == list(range(len(writes)))
    for key in "abc":
        of_key = [number for number in sent if writes[number][1] == key]
        assert of_key == sorted(of_key)


@given(WRITES)
def test_writes_go_to_their_own_statement(writes):
    for sql, rows in collected(writes):
        assert {writes[number][0] for (number,) in rows} == {sql}


def test_taken_writes_are_not_sent_again():
    deferred = Deferred()
    deferred.add([("U", (1,), "a")])
    deferred.take()

    assert not deferred
    assert deferred.take() == []

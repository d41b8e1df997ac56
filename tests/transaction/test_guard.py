"""Raw transaction control is refused; everything else passes."""

import pytest

from consumer_idem.errors import TransactionControlRefused
from consumer_idem.transaction.guard import refuse_control


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "commit;",
        "  -- a comment\n COMMIT",
        "/* x */ ROLLBACK",
        "SELECT 1; COMMIT; SELECT 2",
        "ROLLBACK AND CHAIN",
        "END",
        "ABORT",
        "BEGIN",
        "START  TRANSACTION",
        "PREPARE TRANSACTION 'x'",
        "INSERT INTO t VALUES ('it''s');ROLLBACK",
    ],
)
def test_what_ends_or_begins_a_transaction_is_refused_with_the_way_out(sql):
    with pytest.raises(TransactionControlRefused, match="savepoint"):
        refuse_control(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'COMMIT; ROLLBACK'",
        "ROLLBACK TO SAVEPOINT s",
        "ROLLBACK WORK TO s",
        "SAVEPOINT s",
        "RELEASE SAVEPOINT s",
        'UPDATE t SET "commit" = 1; -- COMMIT',
        "INSERT INTO t VALUES ($$; COMMIT;$$)",
        "DO $body$ BEGIN PERFORM 1; END $body$",
        "SELECT CASE WHEN a THEN 1 ELSE 2 END FROM t",
        "SELECT E'\\'; COMMIT' ",
        "SELECT commit_time FROM t",
    ],
)
def test_what_only_looks_like_it_passes(sql):
    refuse_control(sql)

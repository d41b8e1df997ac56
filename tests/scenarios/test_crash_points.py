"""A worker process killed at every arrow of a batch's way, started again, and its effects counted."""

import pytest

CRASHES = [
    ("poll.after", 2, "awaiting"),
    ("begin.after", 2, "awaiting"),
    ("claim.after", 2, "awaiting"),
    ("handler.before", 8, "awaiting"),
    ("handlers.after", 2, "awaiting"),
    ("flush.after", 2, "deferring"),
    ("settle.after", 2, "deferring"),
    ("seal.after", 2, "awaiting"),
    ("seal.after", 2, "deferring"),
    ("commit.after", 2, "awaiting"),
    ("commit.after", 2, "deferring"),
    ("synchronizers.after", 2, "awaiting"),
    ("offsets.before", 1, "awaiting"),
    ("offsets.after", 1, "awaiting"),
]


@pytest.mark.parametrize(("point", "at", "handler"), CRASHES)
async def test_g2_killed_at(stage, point, at, handler):
    stage.produce([{"payment_id": f"p{n % 50}"} for n in range(60)])
    stage.env |= {"HANDLER": handler}

    victim = await stage.worker(CONSUMER_IDEM_FAILPOINTS=f"{point}=kill@{at}")
    assert await victim.wait() == -9, victim.tail()
    await stage.worker()
    await stage.until_consumed(60)

    assert await stage.effects() == sorted(f"p{n}" for n in range(50))
    assert await stage.rows("SELECT count(*) FROM idem.inbox") == [50]
    assert await stage.rows("SELECT count(*) FROM idem.outbox") == [50]
    assert await stage.rows("SELECT count(*) FROM idem.quarantine") == [0]
    assert await stage.rows("SELECT count(*) FROM idem.attempt") == [0]

"""Whether a contestant did the work: every effect once, every record once, every poisoned message kept. No figure counts without it."""

import asyncpg

from tests.bench.work import Expected

COUNTS = """
WITH record AS (
    SELECT convert_from(value, 'UTF8')::json ->> 'payment_id' AS id FROM outbox_record
    UNION ALL
    SELECT convert_from(value, 'UTF8')::json ->> 'payment_id' FROM idem.outbox
)
SELECT (SELECT count(*) FROM payment) AS payments,
       (SELECT count(DISTINCT id) FROM payment) AS distinct_payments,
       (SELECT count(*) FROM record) AS records,
       (SELECT count(*) FROM payment FULL JOIN record USING (id) WHERE payment.id IS NULL OR record.id IS NULL) AS without_partner,
       (SELECT count(DISTINCT value) FROM dead_letter) + (SELECT count(*) FROM idem.quarantine WHERE state = 'open') AS kept
"""


async def effects(dsn: str) -> int:
    """Return how many payments stand."""
    return await _one(dsn, "SELECT count(*) FROM payment")


async def problems(dsn: str, expected: Expected) -> list[str]:
    """Return what is wrong with the result, nothing if it is right."""
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetchrow(COUNTS)
        balances = {row["id"]: row["balance"] for row in await connection.fetch("SELECT id, balance FROM account WHERE balance <> 0")}
    finally:
        await connection.close()
    wanted = {
        "payments": expected.applied,
        "distinct_payments": expected.applied,
        "records": expected.applied,
        "without_partner": 0,
        "kept": expected.poisoned,
    }
    wrong = [f"{name}: {found[name]} instead of {count}" for name, count in wanted.items() if found[name] != count]
    off = sum(balances.get(account) != balance for account, balance in expected.balances.items()) + len(
        balances.keys() - expected.balances.keys()
    )
    return wrong + ([f"{off} accounts hold a wrong balance"] if off else [])


async def _one(dsn: str, sql: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval(sql))
    finally:
        await connection.close()

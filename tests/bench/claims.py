"""What a claim costs in a small inbox and in a large one, and how many bytes a row takes."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import asyncpg

from consumer_idem.inbox.key import Keys
from consumer_idem.inbox.table import Claims, Content, Inbox
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.transaction.begin import Begin
from tests.bench.rounds import tell
from tests.bench.stage import Stage

SMALL, LARGE = 10_000, 10_000_000
PER_FILL = 1_000_000
BATCH = 500
BATCHES = 200
SEAL = "SELECT set_config('idem.sealed', current_setting('idem.attempt'), true)"
TICKS = os.sysconf("SC_CLK_TCK")

# A key as ours: a tag byte of zero and 15 bytes of hash. The rest as large as real rows have it.
FILL = """
INSERT INTO idem.inbox (key_hash, attempt_id, message_time, "offset", scope, source, topic, partition, fingerprint_version,
                        message_id, fingerprint, field_digests)
SELECT ('00' || substr(md5(n::text), 3))::uuid, gen_random_uuid(), now(), n, 1, 1, 1, n % 8, 1,
       gen_random_uuid()::text, sha256(n::text::bytea), substr(sha256(n::text::bytea), 1, 12)
FROM generate_series($1::bigint, $2::bigint) AS n
"""


async def measure(stage: Stage, share: float) -> dict[str, Any]:
    """Return the cost of claims at both sizes, right after a checkpoint and once the pages it touches are in the log."""
    large = int(LARGE * share)
    found: dict[str, Any] = {"rows": [SMALL, large], "batch": BATCH}
    database = await stage.database()
    connection = await asyncpg.connect(stage.postgres.dsn(database))
    await connection.execute("ALTER TABLE idem.inbox DISABLE TRIGGER sealed")
    there = 0
    for size in (SMALL, large):
        while there < size:
            step = min(PER_FILL, size - there)
            await connection.execute(FILL, there + 1, there + step)
            there += step
            tell(f"claims: {there} rows")
        await connection.execute("VACUUM ANALYZE idem.inbox")
        await connection.execute("ALTER TABLE idem.inbox ENABLE TRIGGER sealed")
        await connection.execute("CHECKPOINT")
        # The first change of a page after a checkpoint puts the whole page into the log: in a large index, nearly every claim does.
        first, then = await _cost(stage, database), await _cost(stage, database)
        found[str(size)] = {"bytes_per_row": await bytes_per_row(stage, database), "after_checkpoint": first, **then}
        tell(f"claims at {size} rows: {found[str(size)]}")
        await connection.execute("ALTER TABLE idem.inbox DISABLE TRIGGER sealed")
    await connection.close()
    await stage.drop(database)
    return found


async def bytes_per_row(stage: Stage, database: str) -> float:
    """Return what a row of the inbox takes on disk, index included."""
    connection = await asyncpg.connect(stage.postgres.dsn(database))
    size, rows = await connection.fetchrow("SELECT pg_total_relation_size('idem.inbox'), count(*) FROM idem.inbox")
    await connection.close()
    return round(size / rows, 1)


async def _cost(stage: Stage, database: str) -> dict[str, float]:
    """Return microseconds per claim: the median transaction's time, and the processor time of PostgreSQL."""
    database_of_ours = AsyncpgDatabase(stage.postgres.dsn(database), max_size=1)
    inbox, begin = Inbox("idem"), Begin(schema="idem")
    times, busy = [], 0.0
    for number in range(BATCHES + 20):
        claims, attempt = _claims(), uuid.uuid4()
        began = perf_counter()
        connection = await begin.attempt(database_of_ours, attempt)
        pid = connection.raw.get_server_pid()
        before = _busy(pid)
        assert await inbox.claim(connection, attempt, claims) == {}
        await connection.fetch(SEAL)
        await connection.commit()
        # The first ones fill caches.
        if number >= 20:
            times.append(perf_counter() - began)
            busy += _busy(pid) - before
    await database_of_ours.close()
    return {"microseconds": round(1e6 * median(times) / BATCH, 2), "database_microseconds": round(1e6 * busy / BATCHES / BATCH, 2)}


def _busy(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _claims() -> Claims:
    keys, ids = Keys("bench", "checkout"), [str(uuid.uuid4()) for _ in range(BATCH)]
    one: Sequence[int] = [1] * BATCH
    content = Content(
        key_hash=[keys.hash((id,)) for id in ids],
        scope=one,
        source=one,
        topic=one,
        partition=one,
        offset=list(range(BATCH)),
        message_id=ids,
        tenant=[None] * BATCH,
        fingerprint=[b"f" * 32] * BATCH,
        fingerprint_version=one,
    )
    return Claims(content, message_time=[1.8e9] * BATCH, field_digests=[b"d" * 12] * BATCH, kept=[None] * BATCH)

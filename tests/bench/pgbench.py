"""The database's floor: the loop's statements, sent by pgbench in pipelines of one transaction, without Kafka and without Python.

Every message is fresh here: pgbench cannot leave out what a duplicate would not do.
"""

import asyncio
import re
import tempfile
from pathlib import Path

import asyncpg

from consumer_idem.testing.services.postgres import default_bin_dir
from tests.bench.measure import Failed, Run
from tests.bench.stage import Stage
from tests.bench.work import ACCOUNTS, OUT

PER_TRANSACTION = 250
CLIENTS = 4
KEY_SPACE = 9_000_000_000_000_000_000

# A client has accounts of its own, as a partition has: else these transactions would deadlock.
MESSAGE = f"""\\set id random(1, {KEY_SPACE})
\\set account :client_id + {CLIENTS} * random(0, {ACCOUNTS // CLIENTS - 1})
\\set amount random(1, 100000)
"""
STATEMENTS = f"""INSERT INTO processed (id) VALUES (:id) ON CONFLICT DO NOTHING RETURNING id;
INSERT INTO payment (id, account, amount) VALUES (:id, 'account-' || lpad(:account, 4, '0'), :amount);
UPDATE account SET balance = balance + :amount WHERE id = 'account-' || lpad(:account, 4, '0');
INSERT INTO outbox_record (topic, key, value) VALUES ('{OUT}', :account, convert_to('{{"payment_id":"' || :id || '"}}', 'UTF8'));
"""
CHECK = """
SELECT (SELECT count(*) FROM processed) AS processed, (SELECT count(*) FROM payment) AS payment,
       (SELECT count(*) FROM outbox_record) AS outbox_record,
       (SELECT sum(balance) FROM account) = (SELECT sum(amount) FROM payment) AS booked
"""


def program() -> Path | None:
    """Return the pgbench of the server that is used here, None if it came without."""
    path = default_bin_dir() / "pgbench"
    return path if path.exists() else None


def script() -> str:
    """Return one transaction of many messages."""
    return "\\startpipeline\nBEGIN;\n" + (MESSAGE + STATEMENTS) * PER_TRANSACTION + "COMMIT;\n\\endpipeline\n"


async def measure(stage: Stage, messages: int) -> Run:
    """Run pgbench on a fresh database."""
    binary = program()
    if binary is None:
        raise Failed("The PostgreSQL binaries that are used here have no pgbench.")
    database = await stage.database()
    transactions = max(1, messages // PER_TRANSACTION // CLIENTS)
    sent = transactions * CLIENTS * PER_TRANSACTION
    try:
        output = await _run(binary, stage, database, transactions)
        found = re.search(r"^tps = ([\d.]+) \(without initial connection time\)", output, re.MULTILINE)
        if found is None:
            raise Failed(f"pgbench said: {output[-2000:]}")
        seconds = sent / (float(found[1]) * PER_TRANSACTION)
        return Run(messages=sent, seconds=seconds, worker_cpu=0, database_cpu=0, memory=0, wrong=await _wrong(stage, database, sent))
    finally:
        await stage.drop(database)


async def _run(binary: Path, stage: Stage, database: str, transactions: int) -> str:
    host, port = stage.postgres.address
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script())
        file.flush()
        options = ["-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-t", str(transactions), "-f", file.name]
        process = await asyncio.create_subprocess_exec(
            str(binary),
            *options,
            *("-h", host, "-p", str(port), "-U", "postgres", database),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    if process.returncode != 0:
        raise Failed(f"pgbench ended with status {process.returncode}: {output.decode()[-2000:]}")
    return output.decode()


async def _wrong(stage: Stage, database: str, sent: int) -> list[str]:
    connection = await asyncpg.connect(stage.postgres.dsn(database))
    try:
        found = await connection.fetchrow(CHECK)
    finally:
        await connection.close()
    wrong = [f"{name}: {found[name]} instead of {sent}" for name in ("processed", "payment", "outbox_record") if found[name] != sent]
    return wrong + ([] if found["booked"] else ["the balances do not add up to the payments"])

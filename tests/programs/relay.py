"""A relay process for tests: `python -m tests.programs.relay`, configured by the environment."""

import asyncio
import logging
import os
import signal
import sys
import time
from datetime import timedelta

from consumer_idem.kafka.confluent_publisher import ConfluentPublisher
from consumer_idem.outbox.relay import Relay, RelaySettings
from consumer_idem.outbox.window import Limits
from consumer_idem.ports import Publisher
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.postgres.listen import AsyncpgListener
from tests.programs.relay_journal import Journal, Noting


async def main(dsn: str, bootstrap: str) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(levelname)s %(name)s %(message)s %(threadName)s")
    _skew_clock(float(os.environ.get("CLOCK_SKEW", "0")))
    database, publisher = AsyncpgDatabase(dsn, max_size=4), ConfluentPublisher(bootstrap, options={"reconnect.backoff.max.ms": 500})
    await publisher.start()
    lease, batch = timedelta(seconds=float(os.environ.get("RELAY_LEASE", "2"))), int(os.environ.get("RELAY_BATCH", "2000"))
    settings = RelaySettings(lease=lease, limits=Limits(batch=batch))
    relay = Relay(database, _journalled(publisher), listener=AsyncpgListener(dsn), settings=settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, relay.loop.stop)
    print(f"relay {relay.owner}", flush=True)
    await relay.loop.run()
    await relay.close(timedelta(seconds=5))
    print("closed", flush=True)
    await publisher.close()
    await database.close()


def _journalled(publisher: Publisher) -> Publisher:
    """Let this process write down what it does, where a file is given for it."""
    path = os.environ.get("RELAY_JOURNAL")
    if path is None:
        return publisher
    journal = Journal(path)
    journal.watch()
    return Noting(publisher, journal)


def _skew_clock(seconds: float) -> None:
    """Let this process's clock be wrong."""
    right = time.time
    time.time = lambda: right() + seconds


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A handler that blocks the event loop is named."""

import asyncio
import time
from datetime import timedelta

from consumer_idem.testing.waiting import eventually
from consumer_idem.watchdog import Watchdog


def blocks_the_loop() -> None:
    time.sleep(0.6)  # the fault itself


async def test_a5_what_blocks_the_event_loop_is_named(caplog):
    with Watchdog(timedelta(seconds=0.1)) as watchdog:
        blocks_the_loop()
        await asyncio.sleep(0)

    assert watchdog.blocked == 1
    (told,) = [record for record in caplog.records if record.name == "consumer_idem.watchdog"]
    assert "blocks_the_loop" in told.stack


async def test_a_loop_that_turns_is_left_alone(caplog):
    # Long enough for a busy machine, which may hold the loop up for a moment.
    with Watchdog(timedelta(seconds=1)) as watchdog:
        turned = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.get_running_loop().time() > turned + 2.5)

    assert watchdog.blocked == 0
    assert [record for record in caplog.records if record.name == "consumer_idem.watchdog"] == []

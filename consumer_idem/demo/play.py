"""The demo from start to end, as the command runs it."""

import asyncio
import time
from contextlib import suppress

from consumer_idem.demo.report import Report
from consumer_idem.demo.services import Services, open_services
from consumer_idem.demo.stage import Options, Stage, staged
from consumer_idem.demo.telling import Teller, print_json, print_table


async def play(options: Options, *, database: str | None, kafka: str | None, as_json: bool) -> bool:
    """Run the demo and print its result; return whether the promise was kept."""
    began = time.monotonic()
    with Teller() as teller:
        if database is None or kafka is None:
            teller.say("starting servers for the demo")
        async with open_services(database, kafka) as services, staged(options, services, teller) as stage:
            report = await perform(stage, began=began)
            teller.close()
            (print_json if as_json else print_table)(report)
            if options.keep:
                await _keep(services, teller)
    return report.kept


async def perform(stage: Stage, *, began: float) -> Report:
    """Go through all steps; `began` is on the monotonic clock."""
    await stage.prepare()
    victim = await stage.start()
    await stage.consume(victim)
    await stage.stop()
    found, verdict = await stage.judge()
    return Report(
        workload=stage.workload,
        found=found,
        verdict=verdict,
        killed_workers=stage.killed_workers,
        seconds=time.monotonic() - began,
    )


async def _keep(services: Services, teller: Teller) -> None:
    names = services.names
    teller.say(f"Kept: topics {names.requested} and {names.applied}, PostgreSQL schemas {names.shop} and {names.library}.")
    if services.own:
        teller.say(f"PostgreSQL: {services.dsn}\nKafka: {services.kafka}\nCtrl-C ends both.")
        # Ctrl-C cancels this task; the run itself was done before.
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

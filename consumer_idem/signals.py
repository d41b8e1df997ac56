"""SIGTERM and SIGINT ask for a stop; the second one exits at once, which the fence makes safe."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

_HARD_EXIT = 75
_NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` at the first signal. Where signals cannot be had (not in the main thread), somebody else sets it."""
    loop = asyncio.get_running_loop()

    def asked(number: signal.Signals) -> None:
        if stop.is_set():
            log.critical("second signal: exiting without waiting for open transactions")
            os._exit(_HARD_EXIT)
        log.info("stopping", extra={"signal": number.name})
        stop.set()

    try:
        for number in _NUMBERS:
            loop.add_signal_handler(number, asked, number)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)

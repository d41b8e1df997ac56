"""A handler that takes too long is cancelled; one that will not stop takes the process with it, which the fence makes safe."""

import asyncio
import logging
import os
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from consumer_idem.errors import ConsumerIdemError

T = TypeVar("T")

log = logging.getLogger(__name__)

_EXIT_STATUS = 75
_GRACE = timedelta(seconds=10)


class DeadlineExceeded(ConsumerIdemError):
    """A handler call took longer than its policy's deadline and was cancelled. Make it faster, or raise the deadline."""


async def within(deadline: timedelta, work: Awaitable[T], grace: timedelta = _GRACE) -> T:
    """Return the result of `work`; cancel it after `deadline` and raise DeadlineExceeded; exit if it ignores that for `grace`."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=deadline.total_seconds())
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=grace.total_seconds())
    if not done:
        log.critical("handler ignores its cancellation; the process exits", extra={"deadline": str(deadline)})
        os._exit(_EXIT_STATUS)
    raise DeadlineExceeded(f"Handler call was cancelled after its deadline of {deadline}.")

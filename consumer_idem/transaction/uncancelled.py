"""Awaits the user's code. A cancellation that comes out of it, but was not meant for us, is an error of that code."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from consumer_idem.errors import ConsumerIdemError

T = TypeVar("T")


class CancellationEscaped(ConsumerIdemError):
    """Something that was awaited had been cancelled, and the CancelledError was let out. Catch it where that is awaited."""


async def uncancelled(work: Awaitable[T]) -> T:
    """Return the result of `work`; raise CancellationEscaped if it raises CancelledError although nobody cancels this task."""
    try:
        return await work
    except asyncio.CancelledError as error:
        raise escaped(error) from error


def escaped(error: asyncio.CancelledError) -> BaseException:
    """Return what came out of the user's code: `error` itself if somebody cancels this task, else CancellationEscaped."""
    task = asyncio.current_task()
    return error if task is None or task.cancelling() else CancellationEscaped()

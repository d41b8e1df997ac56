"""Waiting for a condition instead of sleeping."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_PAUSE = 0.01
_T = TypeVar("_T")


async def eventually(condition: Callable[[], Awaitable[_T] | _T], *, timeout: float = 15.0) -> _T:
    """Ask `condition`, a function or a coroutine function, until its answer is true, and return that; else raise TimeoutError."""
    async with asyncio.timeout(timeout):
        while True:
            answer = condition()
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(_PAUSE)

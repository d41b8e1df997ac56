"""How a process that runs for long is run: on the fastest event loop that is installed, with few and short garbage collections."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

_ALLOCATIONS = 10_000
"""So many new objects before they are looked through: a batch makes thousands, and nearly all of them end with it."""


def run_process(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end in a process that does nothing else."""
    # What the imports have made stays to the end; without this, every full collection walks through all of it again.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made

"""How aiokafka's consumer and producer are started and stopped, in bounded time."""

import asyncio
import time
from typing import Any

from aiokafka.errors import KafkaError

from consumer_idem.errors import KafkaUnavailable
from consumer_idem.kafka._aiokafka_wire import Client

_PAUSE = 0.2
_LAST_WORDS = 1.0


async def start(it: Any, client: Any, seconds: float, bootstrap: str) -> None:
    """Start a consumer or producer whose client is `client`; raise KafkaUnavailable, with everything closed, if it cannot be."""
    client.__class__ = Client
    end = time.monotonic() + seconds
    while True:
        try:
            async with asyncio.timeout(end - time.monotonic()):
                await it.start()
            return
        except (KafkaError, TimeoutError) as error:
            if time.monotonic() + _PAUSE > end:
                await stop(it, client, _LAST_WORDS)
                raise KafkaUnavailable(f"No broker answered at {bootstrap}: {error!r}") from error
        await asyncio.sleep(_PAUSE)


async def stop(it: Any, client: Any, seconds: float) -> bool:
    """Stop it; return False if that was not done in time, and its connections were cut.

    aiokafka waits for whatever is under way: a join that the broker answers when all other members have joined, a batch that
    is sent until it is acknowledged.
    """
    stopping = asyncio.ensure_future(it.stop())
    await asyncio.wait({stopping}, timeout=seconds)
    if stopping.done():
        stopping.result()
        return True
    sender = getattr(getattr(it, "_sender", None), "sender_task", None)
    if sender is not None:
        sender.cancel()
    for connection in list(client._conns.values()):
        connection.close()
    await asyncio.wait({stopping}, timeout=_LAST_WORDS)
    stopping.cancel()
    return False

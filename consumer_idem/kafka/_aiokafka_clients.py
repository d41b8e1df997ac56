"""How aiokafka's consumer and producer are started and stopped, in bounded time."""

import asyncio
import logging
import time
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerClosed

from consumer_idem.errors import KafkaUnavailable
from consumer_idem.kafka._aiokafka_wire import Client

log = logging.getLogger(__name__)

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
    in_time: bool = stopping.done()
    if not in_time:
        await _cut(it, client, stopping)
    # It ends half-way, as cancelled, when one of its own tasks waits to try again.
    if stopping.cancelled() or not stopping.done() or stopping.exception() is not None:
        log.info("aiokafka did not stop cleanly", extra={"of": type(it).__name__})
        await asyncio.wait({asyncio.ensure_future(client.close())}, timeout=_LAST_WORDS)
    return in_time


async def _cut(it: Any, client: Any, stopping: "asyncio.Future[Any]") -> None:
    if isinstance(it, AIOKafkaProducer) and it._sender.sender_task is not None:
        it._sender.sender_task.cancel()
        it._message_accumulator.fail_all(ProducerClosed())
    for connection in list(client._conns.values()):
        connection.close()
    await asyncio.wait({stopping}, timeout=_LAST_WORDS)
    stopping.cancel()

"""Marks of runs that may kill their process: written before such a run, taken back behind it, so that a mark which stays was its death."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from consumer_idem import failpoint
from consumer_idem.consumer.batch import Tables
from consumer_idem.consumer.result import Explained, Settled
from consumer_idem.consumer.seal import Seal
from consumer_idem.errors import CommitUnknown, DatabaseFailure, DatabaseRewound, Fenced
from consumer_idem.message import Message, Position
from consumer_idem.outcome import settled_count
from consumer_idem.ports import Connection
from consumer_idem.transaction.short import short


class Marks:
    """The marks of one process, of all its lanes.

    Those in whose run a process has died before run one at a time: of several that run side by side when it dies again, nobody
    could tell which it was.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._made: dict[Position, int] = {}
        self._suspects = asyncio.Lock()

    async def run(self, seal: Seal, message: Message, call: Callable[[int], Awaitable[Explained]]) -> Explained:
        """Mark the message's run and return what `call` returns; it gets how many marks have stayed, with this one.

        Raises Fenced or DatabaseRewound if that is why there is no mark.
        """
        if await self._mark(seal, message, again=False) and self._made[message.position] == 1:
            return await self._call(seal, message, call)
        async with self._suspects:
            if not await self._mark(seal, message, again=True):
                await seal.explain(self._tables.database)
            return await self._call(seal, message, call)

    async def _call(self, seal: Seal, message: Message, call: Callable[[int], Awaitable[Explained]]) -> Explained:
        try:
            result = await call(self._made.get(message.position, 0))
        except (Fenced, DatabaseRewound, asyncio.CancelledError):
            # The process has outlived this run, too.
            with contextlib.suppress(DatabaseFailure, CommitUnknown):
                await self._take_back(seal, message)
            raise
        if isinstance(result, Settled) and settled_count(result.outcomes):
            self._made.pop(message.position, None)
        else:
            await self._take_back(seal, message)
        return result

    async def _mark(self, seal: Seal, message: Message, *, again: bool) -> bool:
        """Mark the run; False if the lane is fenced, or if a process has died in this run before and it is not `again`."""
        assert seal.fence is not None
        # Once per process: a mark that could not be taken back, for lack of a database, must not count twice.
        if message.position in self._made:
            return True
        async with self._short() as connection:
            marks = await self._tables.attempts.mark(connection, seal.slot(message), message.offset, seal.fence, again=again)
            if marks is None:
                return False
            # Before the commit: one whose answer is lost may have been made all the same.
            self._made[message.position] = marks
        await failpoint.reached("mark.after")
        return True

    async def _take_back(self, seal: Seal, message: Message) -> None:
        if message.position in self._made:
            async with self._short() as connection:
                await self._tables.attempts.unmark(connection, seal.slot(message), message.offset)
            del self._made[message.position]

    def _short(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        return short(self._tables.database, self._tables.schema)

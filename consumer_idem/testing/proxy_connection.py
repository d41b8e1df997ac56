"""One connection through the proxy: two directions, each a reader, a line of chunks that become due, and a writer."""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Protocol

from consumer_idem.testing.services.ports import Address

_CHUNK = 1 << 16
_CHUNKS_UNDER_WAY = 1024
_RESET = struct.pack("ii", 1, 0)


class Fate(Enum):
    """What becomes of a connection."""

    PASS = "pass"
    """It goes on."""
    CUT = "cut"
    """Both sides are reset."""
    HANG = "hang"
    """It stays open and nothing passes any more."""
    END = "end"
    """One side closed it."""


class Watcher(Protocol):
    """Sees the bytes of one connection from its beginning. Returns how many of them may pass; if not all, the rest is lost."""

    def to_server(self, data: bytes) -> int:
        """Look at what the client sent."""

    def to_client(self, data: bytes) -> int:
        """Look at what the server sent."""


class Trigger(Protocol):
    """Decides what is lost, and what becomes of the connection then: Fate.CUT or Fate.HANG."""

    @property
    def then(self) -> Fate:
        """The fate of a connection on which something was lost."""

    def watch(self) -> Watcher:
        """Return the watcher of a new connection."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    due: float
    data: bytes
    fate: Fate


class Connection:
    """A client's connection and the one that leads on to the server."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event, triggers: Sequence[Trigger]
    ) -> None:
        self._reader = reader
        self._writers = [writer]
        self._gates = (gate, asyncio.Event())
        self._gates[1].set()
        self._watchers = [(trigger.watch(), trigger.then) for trigger in triggers]
        self._reset = asyncio.Event()

    def reset(self) -> None:
        """Reset both sides; what is under way is lost."""
        self._reset.set()
        for writer in self._writers:
            if not writer.is_closing():
                # With a linger time of zero the kernel sends RST instead of an orderly end; unix sockets ignore it.
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()

    async def run(self, target: Address | Path, to_server: Callable[[], timedelta], to_client: Callable[[], timedelta]) -> None:
        """Carry bytes both ways until one side ends or the connection is reset."""
        try:
            reader, writer = await _connect(target)
        except OSError:
            self.reset()
            return
        self._writers.append(writer)
        there = _Direction(self._reader, writer, self._gates, to_server)
        back = _Direction(reader, self._writers[0], self._gates, to_client)
        tasks = [
            asyncio.create_task(there.run(lambda data: self._look([w.to_server(data) for w, _ in self._watchers], data))),
            asyncio.create_task(back.run(lambda data: self._look([w.to_client(data) for w, _ in self._watchers], data))),
            asyncio.create_task(self._was_reset()),
        ]
        await self._until_over(tasks)

    async def _until_over(self, tasks: Sequence[asyncio.Task[Fate]]) -> None:
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if any(task.result() is Fate.CUT for task in done):
                self.reset()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in self._writers:
                writer.close()

    async def _was_reset(self) -> Fate:
        await self._reset.wait()
        return Fate.END

    def _look(self, allowed: Sequence[int], data: bytes) -> tuple[bytes, Fate]:
        """Return what may pass: as much as every watcher allows, and the fate that the strictest one asks for."""
        size, fate = min(
            ((size, then) for size, (_, then) in zip(allowed, self._watchers, strict=True)),
            key=lambda found: found[0],
            default=(len(data), Fate.PASS),
        )
        return data[:size], fate if size < len(data) else Fate.PASS


class _Direction:
    """One way: what is read at one end is written at the other, later by the latency that held when it was read."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gates: tuple[asyncio.Event, asyncio.Event],
        latency: Callable[[], timedelta],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._everybody, self._own = gates
        self._latency = latency
        self._clock = asyncio.get_running_loop().time
        self._under_way: asyncio.Queue[_Chunk] = asyncio.Queue(_CHUNKS_UNDER_WAY)

    async def run(self, look: Callable[[bytes], tuple[bytes, Fate]]) -> Fate:
        """Carry until the end; return CUT or END."""
        reading = asyncio.create_task(self._read(look))
        try:
            return await self._write()
        except ConnectionError:
            return Fate.END
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, look: Callable[[bytes], tuple[bytes, Fate]]) -> None:
        fate = Fate.PASS
        while fate is Fate.PASS:
            data = await self._receive()
            passing, fate = look(data) if data else (data, Fate.END)
            due = self._clock() + self._latency().total_seconds()
            await self._under_way.put(_Chunk(due, passing, fate))

    async def _receive(self) -> bytes:
        try:
            return await self._reader.read(_CHUNK)
        except ConnectionError:
            return b""

    async def _write(self) -> Fate:
        while True:
            chunk = await self._under_way.get()
            if (delay := chunk.due - self._clock()) > 0:
                await asyncio.sleep(delay)
            await self._everybody.wait()
            await self._own.wait()
            if chunk.data:
                self._writer.write(chunk.data)
                await self._writer.drain()
            if chunk.fate is Fate.HANG:
                self._own.clear()
            elif chunk.fate is not Fate.PASS:
                return chunk.fate


async def _connect(target: Address | Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(target, Path):
        return await asyncio.open_unix_connection(target)
    return await asyncio.open_connection(*target)

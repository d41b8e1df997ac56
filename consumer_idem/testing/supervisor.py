"""Starts Python programs as child processes, to be watched, stopped and killed; all of them end with the supervisor."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from consumer_idem.errors import ConsumerIdemError
from consumer_idem.testing.keeper import keeper
from consumer_idem.testing.standing import stands

_PAUSE = 0.01
_TAIL = 40
_LINE_LIMIT = 1 << 20


class ChildFailed(ConsumerIdemError):
    """A child process did not do what was waited for. The message ends with its last lines of output."""


class Child:
    """A running program. Standard output and error are one sequence of lines."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.output: list[str] = []
        self._process = process
        self._read = 0
        self._grew = asyncio.Event()
        self._reading = asyncio.create_task(self._collect())

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    async def line(self, pattern: str, *, timeout: float = 30.0) -> str:
        """Wait for a line that `pattern` is found in, behind the line of the last call; return it.

        Raises ChildFailed if the program ends before, or after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._next(re.compile(pattern))
        except TimeoutError:
            raise ChildFailed(f"{self.name} printed no {pattern!r} within {timeout:.0f} s:\n{self.tail()}") from None

    async def wait(self, *, timeout: float = 30.0) -> int:
        """Wait for the end and all output; return the exit status, negative for a signal."""
        try:
            async with asyncio.timeout(timeout):
                status = await self._process.wait()
                await asyncio.shield(self._reading)
        except TimeoutError:
            raise ChildFailed(f"{self.name} did not end within {timeout:.0f} s:\n{self.tail()}") from None
        return status

    async def kill9(self) -> None:
        """Kill it and wait until it is gone."""
        self._signal(signal.SIGKILL)
        await self.wait()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        self._signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Ask it to end as Ctrl-C does (SIGINT)."""
        self._signal(signal.SIGINT)

    async def stop(self) -> None:
        """Stop it where it is (SIGSTOP) and wait until it stands."""
        self._signal(signal.SIGSTOP)
        await self.until_stopped()

    async def until_stopped(self, *, timeout: float = 30.0) -> None:
        """Wait until it stands, also where a failpoint of its own has stopped it."""
        try:
            async with asyncio.timeout(timeout):
                while not self._stands():  # noqa: ASYNC110 - nothing tells of a stop but asking
                    await asyncio.sleep(_PAUSE)
        except TimeoutError:
            raise ChildFailed(f"{self.name} did not stop within {timeout:.0f} s:\n{self.tail()}") from None

    def go_on(self) -> None:
        """Let it go on where it was stopped (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def tail(self) -> str:
        """Return the last lines of the output."""
        return "\n".join(self.output[-_TAIL:])

    async def end(self) -> None:
        """Kill it and the process group that it leads, if they are still there."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.wait()
        keeper.release_process(self.pid)

    def _signal(self, number: signal.Signals) -> None:
        if self.status is not None:
            raise ChildFailed(f"{self.name} has already ended with status {self.status}:\n{self.tail()}")
        self._process.send_signal(number)

    def _stands(self) -> bool:
        if self.status is not None:
            raise ChildFailed(f"{self.name} ended with status {self.status} instead of stopping:\n{self.tail()}")
        return stands(self.pid)

    async def _next(self, pattern: re.Pattern[str]) -> str:
        while True:
            while self._read < len(self.output):
                line = self.output[self._read]
                self._read += 1
                if pattern.search(line):
                    return line
            if self._reading.done():
                raise ChildFailed(f"{self.name} ended before it printed {pattern.pattern!r}:\n{self.tail()}")
            self._grew.clear()
            await self._grew.wait()

    async def _collect(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                self.output.append(line.decode("utf-8", "replace").rstrip("\n"))
                self._grew.set()
        finally:
            self._grew.set()


class Supervisor:
    """An async context manager; at its end every child that is left is killed."""

    def __init__(self, *, env: Mapping[str, str] | None = None) -> None:
        self._env = env or {}
        self.children: list[Child] = []

    async def start(self, *arguments: str, env: Mapping[str, str] | None = None, name: str | None = None) -> Child:
        """Start Python with `arguments`, such as ("-m", "shop.worker") or ("worker.py", "--fast").

        `env` is added to this process's environment and to the supervisor's.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self._env, **(env or {})},
            limit=_LINE_LIMIT,
            start_new_session=True,
        )
        keeper.keep_process(process.pid)
        child = Child(name or " ".join(arguments), process)
        self.children.append(child)
        return child

    async def close(self) -> None:
        """Kill every child that is left and wait until all are gone."""
        await asyncio.gather(*(child.end() for child in self.children))
        self.children.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

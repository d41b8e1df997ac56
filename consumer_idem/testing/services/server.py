"""What every server of ours can do: start, stop, be killed, go on with what it kept, and be gone."""

import signal
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from consumer_idem.testing.keeper import keeper
from consumer_idem.testing.services.process import ServiceFailed, ServiceProcess


class Server(ABC):
    """A child process with a folder of its own, which `close()` removes, or the end of this process.

    Calls block; none of them is bound to a thread. Use as a context manager, or call start() and close().
    """

    name: ClassVar[str]
    patience: ClassVar[float] = 30.0
    """Seconds in which a start or an orderly stop must be done."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._process: ServiceProcess | None = None

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """Whether the process is there, paused ones included."""
        return self._process is not None and self._process.running()

    def start(self) -> None:
        """Start with what the folder holds, make the folder if there is none, and wait until it does its work."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="idem-", dir=self._base()))
            keeper.keep_folder(self._folder)
            self._prepare(self._folder)
        self._process = self._launch(self._folder)

    def stop(self) -> None:
        """Stop in order; what the server has written stays for the next start."""
        self._stop(signal.SIGTERM)

    def kill9(self) -> None:
        """Kill the process; what it has written stays as it is."""
        self._running().kill()
        self._process = None

    def restart(self) -> None:
        """Stop if it runs, and start on the same port with what it had written."""
        if self._process is not None:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the process where it is: connections stay open and nobody answers."""
        self._running().pause(self.patience)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._running().signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server, in whatever state it is, and remove its folder."""
        if self._process is not None:
            self.kill9()
        if self._folder is not None:
            keeper.remove_folder(self._folder)
            self._folder = None

    def log(self) -> str:
        """Return the last lines of the server's log."""
        return self._running().tail()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _prepare(self, folder: Path) -> None:
        """Make what the first start needs in the new `folder`."""

    @abstractmethod
    def _launch(self, folder: Path) -> ServiceProcess:
        """Start the process and wait until it does its work."""

    def _base(self) -> str:
        return tempfile.gettempdir()

    def _stop(self, number: signal.Signals) -> None:
        process = self._running()
        process.signal(number)
        process.wait(self.patience)
        self._process = None

    def _running(self) -> ServiceProcess:
        if self._process is None:
            raise ServiceFailed(f"This {self.name} server is not running. Call start() first.")
        return self._process

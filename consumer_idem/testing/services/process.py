"""One server process of ours: its log, its signals and its end."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from consumer_idem.errors import ConsumerIdemError
from consumer_idem.testing.keeper import keeper
from consumer_idem.testing.standing import stands

_PAUSE = 0.02
_TAIL = 30


class ServiceFailed(ConsumerIdemError):
    """A server for tests did not start or did not answer. The message ends with the last lines of its log."""


class ServiceProcess:
    """Starts `command`, writes its output to `log`, and ends it with this process at the latest."""

    def __init__(self, command: Sequence[str], log: Path, *, user: str | None = None, env: Mapping[str, str] | None = None) -> None:
        self._log = log
        self.name = Path(command[0]).name
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={**os.environ, **(env or {})},
                user=user,
                group=_group_of(user),
                extra_groups=[] if user else None,
                start_new_session=True,
            )
        keeper.keep_process(self._process.pid)

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def running(self) -> bool:
        """Tell whether the process has not ended."""
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has ended gets none."""
        self._process.send_signal(number)

    def pause(self, timeout: float) -> None:
        """Stop it where it is and wait until all of it stands, at most `timeout` seconds."""
        self.signal(signal.SIGSTOP)
        self.until(lambda: stands(self.pid), timeout)

    def wait(self, timeout: float) -> None:
        """Wait for the end, at most `timeout` seconds; then kill."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return
        keeper.release_process(self.pid)

    def kill(self) -> None:
        """Kill the whole process group and wait for its leader's end."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        keeper.release_process(self.pid)

    def until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Wait until `ready()`; else raise ServiceFailed: at the end of the process, or after `timeout` seconds, killing it."""
        end = time.monotonic() + timeout
        while not ready():
            if not self.running():
                keeper.release_process(self.pid)
                raise ServiceFailed(f"{self.name} ended with status {self._process.returncode}:\n{self.tail()}")
            if time.monotonic() > end:
                self.kill()
                raise ServiceFailed(f"{self.name} was not ready after {timeout:.0f} s:\n{self.tail()}")
            time.sleep(_PAUSE)

    def tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-_TAIL:])


def _group_of(user: str | None) -> int | None:
    if user is None:
        return None
    import pwd

    return pwd.getpwnam(user).pw_gid

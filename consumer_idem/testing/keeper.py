"""Ends child processes and removes folders when this process ends, also if it is killed.

A second process, the keeper, holds the reading end of a pipe. When the pipe closes, its other end is gone, so everything
that is still kept is killed and removed. The parent-death signal of Linux would not do: it is bound to the thread that
started the child, and it removes no folder.
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_PATIENCE = 5.0
_PAUSE = 0.05


class Keeper:
    """This process's end of the pipe; the keeper process starts with the first thing that is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def keep_process(self, pid: int) -> None:
        """Kill the process group `pid` when this process ends."""
        self._tell(f"+process {pid}")

    def release_process(self, pid: int) -> None:
        """Forget `pid`, which has ended and was waited for."""
        self._tell(f"-process {pid}")

    def keep_folder(self, folder: Path) -> None:
        """Remove `folder` when this process ends, after its processes were killed."""
        self._tell(f"+folder {folder}")

    def remove_folder(self, folder: Path) -> None:
        """Remove `folder` now and forget it."""
        _remove(folder)
        self._tell(f"-folder {folder}")

    def close(self) -> None:
        """End everything that is kept and wait until it is gone."""
        with self._lock:
            if self._process is not None:
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._process.wait()
                self._process = None

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is None:
                self._process = self._start()
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _start(self) -> subprocess.Popen[bytes]:
        atexit.register(self.close)
        # A session of its own, so that Ctrl-C reaches this process and not the one that cleans up after it.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )


keeper = Keeper()
"""The keeper of this process."""


def _remove(folder: Path) -> None:
    """Remove `folder`; a process that was just killed may still write into it, so try for a while."""
    until = time.monotonic() + _PATIENCE
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(_PAUSE)


def main() -> None:
    """Remember what the pipe names until it closes, then end it."""
    kept: dict[str, dict[str, None]] = {"process": {}, "folder": {}}
    for line in sys.stdin:
        kind, _, name = line.rstrip("\n").partition(" ")
        if kind[0] == "+":
            kept[kind[1:]][name] = None
        else:
            kept[kind[1:]].pop(name, None)
    for pid in kept["process"]:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(pid), signal.SIGKILL)
    for folder in kept["folder"]:
        _remove(Path(folder))


if __name__ == "__main__":
    main()

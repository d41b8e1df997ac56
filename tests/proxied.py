"""A database seen through a TCP proxy."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from consumer_idem.testing.proxy import TcpProxy
from consumer_idem.testing.proxy_connection import Fate, Trigger


def through(dsn: str, *triggers: Trigger) -> tuple[TcpProxy, str]:
    """Return a proxy before the server of `dsn`, not yet listening, and the connection string that leads through it."""
    parts = urlsplit(dsn)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    host, port = query.get("host") or parts.hostname or "localhost", int(query.get("port") or parts.port or 5432)
    target = Path(host) / f".s.PGSQL.{port}" if host.startswith("/") else (host, port)
    proxy = TcpProxy(target, triggers=triggers)
    user = f"{parts.username}:{parts.password}@" if parts.password else f"{parts.username}@"
    return proxy, f"postgresql://{user}127.0.0.1:{proxy.port}{parts.path}"


class Turns:
    """Counts how often the client waited for the server: one ReadyForQuery ends each wait."""

    then = Fate.PASS

    def __init__(self) -> None:
        self.count = 0

    def watch(self) -> "_TurnWatcher":
        return _TurnWatcher(self)


class _TurnWatcher:
    READY = b"Z\x00\x00\x00\x05"

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._tail = b""

    def to_server(self, data: bytes) -> int:
        return len(data)

    def to_client(self, data: bytes) -> int:
        seen = self._tail + data
        self._turns.count += seen.count(self.READY)
        self._tail = seen[-4:]
        return len(data)

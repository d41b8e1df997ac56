"""Counts what goes over the wire between a client and PostgreSQL: https://www.postgresql.org/docs/current/protocol-message-formats.html"""

from collections import Counter
from dataclasses import dataclass, field

from consumer_idem.testing.proxy_connection import Fate

_EXECUTE, _QUERY, _READY = b"E", b"Q", b"Z"
_HEAD = 5
_ASKS_FOR_TLS = (80877103).to_bytes(4, "big")


@dataclass
class Wire:
    """A trigger for the proxy that loses nothing and counts everything, over all connections."""

    then = Fate.PASS
    sent: Counter[bytes] = field(default_factory=Counter)
    received: Counter[bytes] = field(default_factory=Counter)
    bytes_sent: int = 0
    bytes_received: int = 0

    @property
    def statements(self) -> int:
        """How many statements the client had executed."""
        return self.sent[_EXECUTE] + self.sent[_QUERY]

    @property
    def round_trips(self) -> int:
        """How often the client waited for the server."""
        return self.received[_READY]

    def watch(self) -> "_Watcher":
        """Return the watcher of one connection."""
        return _Watcher(self)

    def reset(self) -> None:
        """Count from zero."""
        self.sent.clear()
        self.received.clear()
        self.bytes_sent = self.bytes_received = 0


class _Watcher:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sent = _Messages()
        self._received = _Messages()
        self._starting = True

    def to_server(self, data: bytes) -> int:
        """Count what the client says."""
        self._wire.bytes_sent += len(data)
        self._wire.sent.update(self._sent.types(self._after_start(data) if self._starting else data))
        return len(data)

    def to_client(self, data: bytes) -> int:
        """Count what the server says."""
        self._wire.bytes_received += len(data)
        self._wire.received.update(self._received.types(data))
        return len(data)

    def _after_start(self, data: bytes) -> bytes:
        """Return what comes behind the start-up message, which has no type in front; nothing if this only asks for TLS."""
        length, code = int.from_bytes(data[:4], "big"), data[4:8]
        assert length <= len(data), "the start-up message came in pieces"
        if code == _ASKS_FOR_TLS:
            # The answer is a single letter.
            self._received.skip = 1
        else:
            self._starting = False
        return data[length:]


class _Messages:
    """Cuts a stream into messages."""

    def __init__(self) -> None:
        self._rest = b""
        self.skip = 0

    def types(self, data: bytes) -> list[bytes]:
        """Return the types of the messages that are complete with `data`."""
        stream, place, found = self._rest + data, self.skip, []
        self.skip = 0
        while place + _HEAD <= len(stream):
            end = place + 1 + int.from_bytes(stream[place + 1 : place + _HEAD], "big")
            if end > len(stream):
                break
            found.append(stream[place : place + 1])
            place = end
        self._rest = stream[place:]
        return found

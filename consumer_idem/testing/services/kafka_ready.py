"""Asks a broker, in Kafka's own protocol, whether it does its work. An open port says little: coordinators load for a while.

Without a client library, so that the servers can be started where only one of the two clients is installed.
"""

import socket
import struct
from contextlib import suppress

from consumer_idem.testing.services.ports import Address

_METADATA, _FIND_COORDINATOR, _DESCRIBE_GROUPS, _INIT_PRODUCER_ID = 3, 10, 15, 22
_GROUP = "consumer-idem.ready"
_TIMEOUT = 5.0


def knows_itself(address: Address) -> bool:
    """Tell whether the broker answers with cluster metadata that names a broker."""
    with suppress(OSError):
        # Metadata version 1 without topics: int32 count of brokers first.
        answer = _ask(address, _METADATA, 1, struct.pack(">i", 0))
        (brokers,) = struct.unpack_from(">i", answer)
        return bool(brokers)
    return False


def coordinates_groups(address: Address) -> bool:
    """Tell whether the broker finds a group's coordinator and that one has loaded."""
    with suppress(OSError):
        found = _ask(address, _FIND_COORDINATOR, 0, _string(_GROUP))
        if _code(found) != 0:
            return False
        # Version 0: an array of groups, each beginning with its error code.
        return _code(_ask(address, _DESCRIBE_GROUPS, 0, struct.pack(">i", 1) + _string(_GROUP)), at=4) == 0
    return False


def gives_producer_ids(address: Address) -> bool:
    """Tell whether an idempotent producer would get its id."""
    with suppress(OSError):
        # Version 0: throttle time, then the error code. A null transactional id, a time-out that then does not matter.
        return _code(_ask(address, _INIT_PRODUCER_ID, 0, struct.pack(">hi", -1, 60_000)), at=4) == 0
    return False


def does_everything(address: Address) -> bool:
    """Tell whether all of that works."""
    return knows_itself(address) and coordinates_groups(address) and gives_producer_ids(address)


def _ask(address: Address, api: int, version: int, body: bytes) -> bytes:
    """Send one request on a connection of its own; return the answer without its correlation id."""
    request = struct.pack(">hhi", api, version, 1) + _string("consumer-idem") + body
    with socket.create_connection(address, _TIMEOUT) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _read(connection, 4))
        return _read(connection, size)[4:]


def _read(connection: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        part = connection.recv(size)
        if not part:
            raise ConnectionResetError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _code(answer: bytes, *, at: int = 0) -> int:
    (code,) = struct.unpack_from(">h", answer, at)
    return int(code)

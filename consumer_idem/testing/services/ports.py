"""Ports for servers that stop and start again on the same one."""

import random
import socket

Address = tuple[str, int]
"""A host and a port."""

# Below the range from which systems take the ports of outgoing connections: a client that keeps trying to reach a stopped
# server on a port of that range may at last be given the same port, connect to itself, and hold it.
_RANGE = range(20_000, 32_000)

_given: set[int] = set()
"""What is bound only later, or again, looks free meanwhile: a stopped server's port, a proxy's that has not begun."""


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens now; one that was given before only when others are scarce."""
    for port in sorted(random.sample(_RANGE, 500), key=_given.__contains__):
        if _is_free(port):
            _given.add(port)
            return port
    raise OSError("No free port was found on 127.0.0.1.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

"""The same servers as containers, where a Docker engine answers. Plain images with settings, on fixed ports of 127.0.0.1.

Fixed, because a container that starts again would get another free port, and a broker advertises its own.
"""

import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from importlib import util
from typing import Any, ClassVar, Self

from consumer_idem.testing.services.kafka import PROPERTIES, listeners
from consumer_idem.testing.services.kafka_jars import KAFKA_VERSION
from consumer_idem.testing.services.kafka_ready import does_everything
from consumer_idem.testing.services.ports import Address, free_port
from consumer_idem.testing.services.process import ServiceFailed

_PATIENCE = 60.0
_PAUSE = 0.05
_SOCKET = "/var/run/docker.sock"


def docker_answers() -> bool:
    """Tell, within a second, whether a Docker engine answers and testcontainers can use it."""
    host = os.environ.get("DOCKER_HOST", f"unix://{_SOCKET}")
    if util.find_spec("testcontainers") is None:
        return False
    if host.startswith("unix://"):
        return _pings(host.removeprefix("unix://"))
    from docker import DockerClient
    from docker.errors import DockerException

    with suppress(DockerException):
        return bool(DockerClient(base_url=host, timeout=1).ping())
    return False


def _pings(path: str) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        connection.connect(path)
        connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
        return b" 200 " in connection.recv(64)
    return False


class ContainerServer(ABC):
    """What a Server can do, done by the engine. testcontainers' own reaper removes what a killed process leaves behind."""

    image: ClassVar[str]

    def __init__(self) -> None:
        self._container: Any = None

    def start(self) -> None:
        """Create or start the container and wait until the server does its work."""
        if self._container is None:
            self._container = self._create().start()
        else:
            self._engine().start()
        end = time.monotonic() + _PATIENCE
        while not self._ready():
            if time.monotonic() > end:
                raise ServiceFailed(f"The container of {self.image} was not ready:\n{self._engine().logs(tail=30).decode()}")
            time.sleep(_PAUSE)

    def stop(self) -> None:
        """Stop in order; the container keeps what the server has written."""
        self._engine().stop()

    def kill9(self) -> None:
        """Kill the server."""
        self._engine().kill()

    def restart(self) -> None:
        """Stop, and start with what it had written."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop every process of the container where it is."""
        self._engine().pause()

    def resume(self) -> None:
        """Let a paused container go on."""
        self._engine().unpause()

    def close(self) -> None:
        """Remove the container."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _engine(self) -> Any:
        if self._container is None:
            raise ServiceFailed(f"The container of {self.image} is not running. Call start() first.")
        return self._container.get_wrapped_container()

    @abstractmethod
    def _create(self) -> Any:
        """Return the container, not started."""

    @abstractmethod
    def _ready(self) -> bool:
        """Tell whether the server does its work."""


class PostgresContainer(ContainerServer):
    """PostgreSQL 18 without passwords. `settings` go to the server's command line."""

    image = "postgres:18"

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.port = free_port()
        self._settings = {"fsync": "on" if fsync else "off", "max_connections": "200", **(settings or {})}

    @property
    def address(self) -> Address:
        """Where it listens for TCP."""
        return ("127.0.0.1", self.port)

    def dsn(self, database: str = "postgres", *, via: Address | None = None) -> str:
        """Return the connection string of `database`, directly or through `via`, such as a proxy's address."""
        host, port = via or self.address
        return f"postgresql://postgres@{host}:{port}/{database}"

    def _create(self) -> Any:
        from testcontainers.core.container import DockerContainer

        options = [option for name, value in self._settings.items() for option in ("-c", f"{name}={value}")]
        container = DockerContainer(self.image).with_command(["postgres", *options])
        return container.with_env("POSTGRES_HOST_AUTH_METHOD", "trust").with_bind_ports(5432, self.port)

    def _ready(self) -> bool:
        """Log in: the engine's own proxy accepts connections before the server does."""
        login = struct.pack(">i", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
        with suppress(OSError), socket.create_connection(self.address, 5.0) as connection:
            connection.sendall(struct.pack(">i", len(login) + 4) + login)
            return connection.recv(1) == b"R"
        return False


class KafkaContainer(ContainerServer):
    """Apache Kafka, one broker in KRaft mode, with the same defaults and the same second listener as KafkaBroker."""

    image = f"apache/kafka:{KAFKA_VERSION}"
    is_real: ClassVar[bool] = True

    def __init__(self, *, properties: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.port = free_port()
        self.proxy_port = free_port()
        self._proxied_port = free_port()
        self._properties = properties or {}

    @property
    def bootstrap(self) -> str:
        """The address for clients, as `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def proxied_address(self) -> Address:
        """Where a proxy that listens at `proxy_port` must lead to."""
        return ("127.0.0.1", self._proxied_port)

    def _create(self) -> Any:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(self.image).with_bind_ports(self.port, self.port)
        container.with_bind_ports(self._proxied_port, self._proxied_port)
        for name, value in self._all_properties().items():
            container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
        return container

    def _all_properties(self) -> dict[str, str]:
        controller = free_port()
        ports = {"PLAINTEXT": self.port, "PROXIED": self._proxied_port, "CONTROLLER": controller}
        return {
            **PROPERTIES,
            "listeners": listeners(ports, ""),
            "advertised.listeners": listeners({"PLAINTEXT": self.port, "PROXIED": self.proxy_port}),
            "controller.quorum.voters": f"1@localhost:{controller}",
            **self._properties,
        }

    def _ready(self) -> bool:
        return does_everything(("127.0.0.1", self.port))

"""Apache Kafka itself, one broker in KRaft mode, as a child process of ours."""

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from consumer_idem.testing.services.kafka_jars import jars, java
from consumer_idem.testing.services.kafka_ready import does_everything
from consumer_idem.testing.services.ports import Address, free_port
from consumer_idem.testing.services.process import ServiceFailed, ServiceProcess
from consumer_idem.testing.services.server import Server

# Small and quick: short time-outs may be asked for, clean-up tasks run often, internal topics are not replicated.
PROPERTIES: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A broker that was killed is let in again only when its last session has run out.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}


class KafkaBroker(Server):
    """A broker with log folders and ports of its own; `properties` override the defaults above.

    It has a second listener for clients behind a proxy: what the broker tells clients that come through `proxied_address`
    is to stay there, at `proxy_port`, where the test's proxy listens. Other clients see nothing of it.
    """

    name = "Kafka"
    patience = 60.0
    is_real: ClassVar[bool] = True
    _founding: ClassVar[Sequence[str]] = ("--standalone",)

    def __init__(self, *, properties: Mapping[str, str] | None = None, heap: str = "512m") -> None:
        super().__init__()
        self.port = free_port()
        self.proxy_port = free_port()
        self._proxied_port = free_port()
        self._controller_port = free_port()
        self._properties = properties or {}
        self._heap = heap
        self._cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    @property
    def bootstrap(self) -> str:
        """The address for clients, as `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def proxied_address(self) -> Address:
        """Where a proxy that listens at `proxy_port` must lead to."""
        return ("127.0.0.1", self._proxied_port)

    def _prepare(self, folder: Path) -> None:
        lines = (f"{name}={value}\n" for name, value in self._all_properties(folder).items())
        (folder / "server.properties").write_text("".join(lines))
        how = ["format", *self._founding, f"--cluster-id={self._cluster}", "-c", "server.properties"]
        command = self._java("kafka.tools.StorageTool", *how)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServiceFailed(f"Kafka's log folder could not be formatted:\n{done.stdout}{done.stderr}")

    def _launch(self, folder: Path) -> ServiceProcess:
        process = ServiceProcess(self._java("kafka.Kafka", "server.properties"), folder / "log")
        process.until(self._works, self.patience)
        return process

    def _works(self) -> bool:
        return does_everything(("127.0.0.1", self.port))

    def _all_properties(self, folder: Path) -> dict[str, str]:
        ports = {"PLAINTEXT": self.port, "PROXIED": self._proxied_port, "CONTROLLER": self._controller_port}
        return {
            **PROPERTIES,
            "listeners": listeners(ports),
            "advertised.listeners": listeners({"PLAINTEXT": self.port, "PROXIED": self.proxy_port}),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "log.dirs": str(folder / "data"),
            **self._properties,
        }

    def _java(self, main: str, *arguments: str) -> Sequence[str]:
        runtime = java()
        if runtime is None:
            raise ServiceFailed("Kafka needs a Java runtime of version 17 or newer. Install one, or set JAVA_HOME.")
        options = [f"-Xmx{self._heap}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return [runtime, *options, "-cp", f"{jars()}/*", main, *arguments]


def listeners(ports: Mapping[str, int], host: str = "127.0.0.1") -> str:
    """Return the property that names a listener for each of `ports`."""
    return ",".join(f"{name}://{host}:{port}" for name, port in ports.items())

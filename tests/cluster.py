"""Three Kafka brokers that replicate: to stop and kill those that have what the others lack.

The first is the controller too, so that it must stay. A topic that is to lose its leader lies on the other two.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

from consumer_idem.testing.services.kafka import KafkaBroker, listeners
from consumer_idem.testing.services.kafka_ready import coordinates_groups, knows_itself
from tests.conftest import admin_of

_PROPERTIES = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3"}
_PATIENCE = 60.0


class Node(KafkaBroker):
    """One of the three. It works when it has joined; what needs the others is the cluster's to wait for."""

    def __init__(self, number: int, first: "Node | None" = None) -> None:
        super().__init__(properties=_PROPERTIES, heap="256m")
        self.number = number
        self._first = first
        if first is not None:
            self._cluster, self._controller_port = first._cluster, first._controller_port

    def _all_properties(self, folder: Path) -> dict[str, str]:
        found = {**super()._all_properties(folder), "node.id": str(self.number)}
        if self._first is not None:
            found |= {"process.roles": "broker", "listeners": listeners({"PLAINTEXT": self.port, "PROXIED": self._proxied_port})}
        return found

    def _works(self) -> bool:
        return knows_itself(("127.0.0.1", self.port))


class Follower(Node):
    """Joins the cluster that the first one founded."""

    _founding: ClassVar[Sequence[str]] = ()


class Cluster:
    """Starts all three, and ends them with the block."""

    def __init__(self) -> None:
        first = Node(1)
        self.nodes: Sequence[Node] = (first, Follower(2, first), Follower(3, first))

    @property
    def bootstrap(self) -> str:
        """The addresses of all three."""
        return ",".join(node.bootstrap for node in self.nodes)

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(Node.start, self.nodes))
            # The first is always there to answer.
            self.admin = admin_of(self.nodes[0].bootstrap)
            _wait(lambda: any(coordinates_groups(("127.0.0.1", node.port)) for node in self.nodes), "a coordinator of groups")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all three."""
        for node in self.nodes:
            node.close()

    def topic(self, name: str, replicas: Sequence[Node], **config: str) -> None:
        """Make a topic with one partition, led by the first of `replicas`."""
        from confluent_kafka.admin import NewTopic

        numbers = [node.number for node in replicas]
        config = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(name, 1, replica_assignment=[numbers], config=config)])[name].result(30)
        self.until_in_sync(name, *replicas)
        self.until_led_by(name, replicas[0])

    def until_in_sync(self, topic: str, *nodes: Node) -> None:
        """Wait until these and no others have all of the partition."""
        wanted = sorted(node.number for node in nodes)
        _wait(lambda: sorted(getattr(self._partition(topic), "isrs", ())) == wanted, f"{wanted} in sync")

    def until_led_by(self, topic: str, node: Node) -> None:
        """Wait until the partition has this leader."""
        _wait(lambda: self.leader_of(topic) == node.number, f"{node.number} as leader")

    def leader_of(self, topic: str) -> int | None:
        """Return the number of the node that leads the partition, -1 if none does."""
        return getattr(self._partition(topic), "leader", None)

    def _partition(self, topic: str) -> Any:
        # A topic that was made a moment ago has none yet.
        return self.admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)


def _wait(condition: Any, what: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, f"The cluster does not come to have {what}."
        time.sleep(0.1)

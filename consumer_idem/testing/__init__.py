"""Tools to prove a handler with: real servers that can be killed, a proxy that loses answers, a supervisor for processes.

Importing this package imports neither a Kafka client nor testcontainers; a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consumer_idem.testing.deliver import Crashed as Crashed
    from consumer_idem.testing.deliver import Deliverer as Deliverer
    from consumer_idem.testing.deliver import crash_at as crash_at
    from consumer_idem.testing.lost import KafkaApi as KafkaApi
    from consumer_idem.testing.lost import LostCommit as LostCommit
    from consumer_idem.testing.lost import LostKafka as LostKafka
    from consumer_idem.testing.proxy import TcpProxy as TcpProxy
    from consumer_idem.testing.proxy_connection import Fate as Fate
    from consumer_idem.testing.services.kafka import KafkaBroker as KafkaBroker
    from consumer_idem.testing.services.postgres import PostgresServer as PostgresServer
    from consumer_idem.testing.services.process import ServiceFailed as ServiceFailed
    from consumer_idem.testing.services.small_broker import SmallBroker as SmallBroker
    from consumer_idem.testing.supervisor import Child as Child
    from consumer_idem.testing.supervisor import ChildFailed as ChildFailed
    from consumer_idem.testing.supervisor import Supervisor as Supervisor
    from consumer_idem.testing.waiting import eventually as eventually

_HOMES = {
    "Child": "supervisor",
    "ChildFailed": "supervisor",
    "Crashed": "deliver",
    "Deliverer": "deliver",
    "Fate": "proxy_connection",
    "KafkaApi": "lost",
    "KafkaBroker": "services.kafka",
    "LostCommit": "lost",
    "LostKafka": "lost",
    "PostgresServer": "services.postgres",
    "ServiceFailed": "services.process",
    "SmallBroker": "services.small_broker",
    "Supervisor": "supervisor",
    "TcpProxy": "proxy",
    "crash_at": "deliver",
    "eventually": "waiting",
}

__all__ = [
    "Child",
    "ChildFailed",
    "Crashed",
    "Deliverer",
    "Fate",
    "KafkaApi",
    "KafkaBroker",
    "LostCommit",
    "LostKafka",
    "PostgresServer",
    "ServiceFailed",
    "SmallBroker",
    "Supervisor",
    "TcpProxy",
    "crash_at",
    "eventually",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)

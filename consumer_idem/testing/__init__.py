"""Tools to prove a handler with: real servers that can be killed, a proxy that loses answers, a supervisor for processes.

Importing this package imports neither a Kafka client nor testcontainers; a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consumer_idem.testing.services.kafka import KafkaBroker as KafkaBroker
    from consumer_idem.testing.services.postgres import PostgresServer as PostgresServer
    from consumer_idem.testing.services.process import ServiceFailed as ServiceFailed
    from consumer_idem.testing.services.small_broker import SmallBroker as SmallBroker

_HOMES = {
    "KafkaBroker": "services.kafka",
    "PostgresServer": "services.postgres",
    "ServiceFailed": "services.process",
    "SmallBroker": "services.small_broker",
}

__all__ = ["KafkaBroker", "PostgresServer", "ServiceFailed", "SmallBroker"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)

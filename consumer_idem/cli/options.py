"""The flags that several commands share, and how they become settings."""

from enum import StrEnum
from typing import Annotated, Any

import typer


class Client(StrEnum):
    """The Kafka client libraries."""

    AIOKAFKA = "aiokafka"
    CONFLUENT = "confluent"


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


AppPath = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is, e.g. shop.payments:app.", show_default=False)]

Database = Annotated[
    str | None,
    typer.Option(
        metavar="DSN",
        help="PostgreSQL, e.g. postgresql://user@host/shop. A password is better kept in CONSUMER_IDEM_DATABASE: others see your flags.",
        show_default=False,
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT,…", help="Bootstrap servers. (CONSUMER_IDEM_KAFKA; default localhost:9092)", show_default=False),
]
KafkaClient = Annotated[
    Client | None,
    typer.Option(help="The Kafka client library. (CONSUMER_IDEM_CLIENT; default aiokafka)", show_default=False),
]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="PostgreSQL schema of the library's tables. (CONSUMER_IDEM_SCHEMA; default idem)", show_default=False
    ),
]
Level = Annotated[LogLevel, typer.Option("--log-level", help="How much is logged, to standard error.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def flags(**given: Any) -> dict[str, Any]:
    """Return the flags that were given, as settings."""
    return {name: value.value if isinstance(value, StrEnum) else value for name, value in given.items() if value is not None}

"""Which adapters a process uses. Client libraries are imported here, when one is needed, and nowhere else."""

import ssl
from typing import Any

from pydantic import SecretStr

from consumer_idem.errors import ClientMissing, DeclarationError
from consumer_idem.ports import Database, Listener, Publisher, Subscriber
from consumer_idem.postgres.asyncpg import AsyncpgDatabase
from consumer_idem.postgres.listen import AsyncpgListener
from consumer_idem.settings import Settings


def make_database(settings: Settings) -> Database:
    """Return the database that the settings name."""
    if settings.database is None:
        raise DeclarationError("No database is named. Pass --database postgresql://…, set CONSUMER_IDEM_DATABASE, or App(database=…).")
    cache = 256 if settings.prepared_statements else 0
    return AsyncpgDatabase(settings.database.get_secret_value(), max_size=settings.pool_size, statement_cache_size=cache)


def make_listener(settings: Settings) -> Listener | None:
    """Return what hears that records were written; None without a DSN: then polling alone finds them."""
    return None if settings.database is None else AsyncpgListener(settings.database.get_secret_value())


def make_subscriber(settings: Settings, group: str) -> Subscriber:
    """Return a subscriber of the client that the settings name; raise ClientMissing if it is not installed."""
    timeout, options = settings.session_timeout, _options(settings)
    try:
        if settings.client == "aiokafka":
            from consumer_idem.kafka.aiokafka import AiokafkaSubscriber

            return AiokafkaSubscriber(settings.kafka, group, session_timeout=timeout, options=options)
        from consumer_idem.kafka.confluent import ConfluentSubscriber

        return ConfluentSubscriber(settings.kafka, group, session_timeout=timeout, options=options)
    except ModuleNotFoundError as error:
        raise _missing(settings) from error


def make_publisher(settings: Settings) -> Publisher:
    """Return a publisher of the client that the settings name; raise ClientMissing if it is not installed."""
    try:
        if settings.client == "aiokafka":
            from consumer_idem.kafka.aiokafka import AiokafkaPublisher

            return AiokafkaPublisher(settings.kafka, options=_options(settings))
        from consumer_idem.kafka.confluent import ConfluentPublisher

        return ConfluentPublisher(settings.kafka, options=_options(settings))
    except ModuleNotFoundError as error:
        raise _missing(settings) from error


def _options(settings: Settings) -> dict[str, Any]:
    options = {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in settings.kafka_options.items()}
    return _with_tls(options) if settings.client == "aiokafka" else options


def _with_tls(options: dict[str, Any]) -> dict[str, Any]:
    """aiokafka wants a context where others want the names of files: `ssl_cafile`, `ssl_certfile`, `ssl_keyfile`, `ssl_password`."""
    files = {name: options.pop(f"ssl_{name}", None) for name in ("cafile", "certfile", "keyfile", "password")}
    if "SSL" in str(options.get("security_protocol", "")):
        context = ssl.create_default_context(cafile=files["cafile"])
        if files["certfile"] is not None:
            context.load_cert_chain(files["certfile"], files["keyfile"], files["password"])
        options["ssl_context"] = context
    return options


def _missing(settings: Settings) -> ClientMissing:
    return ClientMissing(
        f"The Kafka client is not installed. Run `pip install 'consumer-idem[{settings.client}]'`, or choose another --client."
    )

"""The only reader of the environment: `CONSUMER_IDEM_…` and `.env`. Secrets are masked wherever settings are shown."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from consumer_idem.errors import SettingRefused

Client = Literal["aiokafka", "confluent"]

_FOLLOWING = ("idle_in_transaction_timeout", "statement_timeout", "lock_timeout")


def _seconds(value: object) -> object:
    """Take a bare number from the environment as seconds."""
    return timedelta(seconds=float(value)) if isinstance(value, str) and value.replace(".", "", 1).isdigit() else value


Duration = Annotated[timedelta, BeforeValidator(_seconds)]

_SESSION = timedelta(seconds=30)
_STATEMENT = timedelta(seconds=20)


def _at_most(longest: timedelta, share: float, of: str, otherwise: timedelta) -> Callable[[dict[str, Any]], timedelta]:
    """Make a default: `longest`, or this share of the time-out `of` where that is less. Whoever lowers one need not lower all."""
    # Older versions of pydantic call it although the other was refused, and is not among what is known.
    return lambda known: min(longest, known.get(of, otherwise) * share)


class Settings(BaseSettings):
    """What a process needs to know besides its code. Durations are seconds or ISO 8601."""

    model_config = SettingsConfigDict(
        env_prefix="CONSUMER_IDEM_",
        env_file=".env",
        extra="ignore",
        frozen=True,
        # Without it an alias is the only name that the constructor takes, and `schema_name=` is ignored.
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    database: SecretStr | None = None
    """PostgreSQL DSN, e.g. postgresql://user:password@host/name."""
    kafka: str = "localhost:9092"
    """Bootstrap servers, comma-separated."""
    kafka_options: dict[str, SecretStr | bool | int | float] = Field(default_factory=dict)
    """Further options of the Kafka client by its own names, as JSON: security, SASL, SSL, client id."""
    client: Client = "aiokafka"
    schema_name: str = Field("idem", validation_alias="CONSUMER_IDEM_SCHEMA")
    """PostgreSQL schema of the library's tables."""
    batch_size: int = Field(500, ge=1, le=10_000)
    """The most messages that share a transaction."""
    session_timeout: Duration = Field(_SESSION, gt=timedelta(0))
    """After so long without a heartbeat Kafka gives a worker's partitions to another."""
    idle_in_transaction_timeout: Duration = Field(default_factory=_at_most(timedelta(seconds=10), 1 / 2, "session_timeout", _SESSION))
    """PostgreSQL ends a transaction whose worker is silent for so long. Must be below session_timeout; by default at most half of it."""
    statement_timeout: Duration = Field(default_factory=_at_most(_STATEMENT, 2 / 3, "session_timeout", _SESSION))
    """PostgreSQL ends a statement that takes so long, also one that its worker never finished sending. Must be below session_timeout; by
    default at most two thirds of it.
    """
    lock_timeout: Duration = Field(default_factory=_at_most(timedelta(seconds=3), 1 / 2, "statement_timeout", _STATEMENT))
    """The longest wait for a key that another worker is handling. Must be below statement_timeout; by default at most half of it."""
    outbox_depth_limit: int = Field(100_000, ge=1)
    """Consumption pauses when so many records wait to be published, and resumes at half."""
    outbox_age_limit: Duration = Field(timedelta(minutes=10), gt=timedelta(0))
    """Consumption pauses when a record has waited so long to be published, and resumes at half."""
    pool_size: int = Field(20, ge=2)
    """The most connections of a process for its transactions: a partition needs one while it settles a batch."""
    drain_timeout: Duration = timedelta(seconds=10)
    """How long a worker that stops, or gives a partition back, may take to finish its transaction."""
    health_port: int | None = Field(None, ge=0, le=65_535)
    """Where `/live` and `/ready` answer; None for no such port, 0 for any that is free."""
    prepared_statements: bool = True
    """False behind a transaction-pooling proxy that does not know protocol-level prepared statements."""

    def chosen(self) -> dict[str, Any]:
        """Return all settings but defaults that follow from others: those follow anew where something else goes before."""
        return {name: value for name, value in self if name in self.model_fields_set or name not in _FOLLOWING}


def settings_from(given: Mapping[str, Any]) -> Settings:
    """Return the settings: what is `given`, then the environment, then `.env`; raise SettingRefused for what cannot be used."""
    try:
        return Settings(**given)
    # Without the cause: a traceback would quote what may be a secret.
    except ValidationError as error:
        # A default that follows from others is no mistake of its own.
        mistakes = [problem for problem in error.errors(include_input=False) if problem["type"] != "default_factory_not_called"]
        refused = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in mistakes)
        raise SettingRefused(f"These settings cannot be used. {refused}. Correct the flag, App(…), the environment or .env.") from None
    except SettingsError as error:
        raise SettingRefused(f"The environment or .env cannot be read: {error}. Lists and options are written as JSON.") from None

"""`consumer-idem run`: a worker process."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from consumer_idem.cli.options import AppPath, Database, Kafka, KafkaClient, Level, LogJson, LogLevel, Schema, flags

if TYPE_CHECKING:
    from consumer_idem.consumer.offsets import FirstStart


def run(
    app: AppPath,
    database: Database = None,
    kafka: Kafka = None,
    client: KafkaClient = None,
    schema: Schema = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The most messages that share a transaction. (CONSUMER_IDEM_BATCH_SIZE; default 500)", show_default=False
        ),
    ] = None,
    no_relay: Annotated[bool, typer.Option("--no-relay", help="Do not publish the outbox: `consumer-idem relay` does.")] = False,
    start: Annotated[
        str, typer.Option(metavar="earliest|latest|TIME", help="Where partitions start that neither Kafka nor the database knows.")
    ] = "earliest",
    new_scope: Annotated[
        bool, typer.Option("--new-scope", help="Accept a handler that is new on a topic which the group has read before.")
    ] = False,
    health_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Answer /live and /ready there. (CONSUMER_IDEM_HEALTH_PORT)", show_default=False),
    ] = None,
    log_level: Level = LogLevel.INFO,
    log_json: LogJson = False,
) -> None:
    """Consume the topics of an App's handlers, and publish its outbox.

    Ctrl-C or SIGTERM finishes what is open and ends. The second time it ends at once: nothing is lost, but other workers get its
    partitions only after the session time-out, and begin with them one message at a time.
    """
    from consumer_idem.cli.load import load
    from consumer_idem.cli.logs import set_up
    from consumer_idem.cli.process import run_process

    first_start = _first_start(start)
    set_up(log_level, as_json=log_json)
    loaded = load(app)
    loaded.runtime(flags(database=database, kafka=kafka, client=client, schema_name=schema, batch_size=batch_size, health_port=health_port))
    run_process(loaded.run(relay=not no_relay, first_start=first_start, new_scope=new_scope))


def _first_start(text: str) -> "FirstStart":
    match text:
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither earliest, latest nor an ISO time.", param_hint="--start") from None
    if time.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone. Add one, e.g. {text}Z.", param_hint="--start")
    return time

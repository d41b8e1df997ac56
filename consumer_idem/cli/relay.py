"""`consumer-idem relay`: a process that publishes the outbox and consumes nothing."""

from typing import Annotated

import typer

from consumer_idem.cli.options import Database, Kafka, KafkaClient, Level, LogJson, LogLevel, Schema, flags


def relay(
    app: Annotated[
        str | None, typer.Argument(metavar="[MODULE:APP]", help="Take database and Kafka from this App.", show_default=False)
    ] = None,
    database: Database = None,
    kafka: Kafka = None,
    client: KafkaClient = None,
    schema: Schema = None,
    log_level: Level = LogLevel.INFO,
    log_json: LogJson = False,
) -> None:
    """Publish what handlers have left in the outbox. Any number of these may run."""
    from consumer_idem.app import App
    from consumer_idem.cli.load import load
    from consumer_idem.cli.logs import set_up
    from consumer_idem.cli.process import run_process

    set_up(log_level, as_json=log_json)
    loaded = load(app) if app else App(group="relay")
    loaded.runtime(flags(database=database, kafka=kafka, client=client, schema_name=schema))
    run_process(loaded.relay())

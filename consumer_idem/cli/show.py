"""`consumer-idem show`: what happened to a message."""

from typing import TYPE_CHECKING, Annotated

import typer

from consumer_idem.cli.options import AppPath, AsJson, Database, Schema, flags

if TYPE_CHECKING:
    from consumer_idem.history import History
    from consumer_idem.runtime import Runtime


def show(
    app: AppPath,
    name: Annotated[str, typer.Argument(metavar="SOURCE|HANDLER", help="Whose message it is.", show_default=False)],
    message_id: Annotated[
        list[str],
        typer.Argument(metavar="MESSAGE_ID…", help="The message's id; all its parts, if it has several.", show_default=False),
    ],
    tenant: Annotated[str | None, typer.Option(help="The tenant, if the source declares one.", show_default=False)] = None,
    database: Database = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Tell what happened to a message: outcome, answer, duplicates, quarantine, records not yet published.

    Exit status 1 if nothing is known of it. Example: consumer-idem show shop.payments:app checkout 4711
    """
    import asyncio

    from consumer_idem.cli.load import load
    from consumer_idem.cli.told import as_lines, as_objects

    runtime = load(app).runtime(flags(database=database, schema_name=schema))
    histories = asyncio.run(_find(runtime, name, message_id, tenant))
    if as_json:
        typer.echo(as_objects(histories))
    elif histories:
        typer.echo("\n".join(line for history in histories for line in as_lines(history)))
    else:
        typer.echo(
            f"No handler has settled {'|'.join(message_id)}, and no entry in quarantine has this id. "
            "What could not be decoded has none: `consumer-idem quarantine list --reason undecodable --entries`.",
            err=True,
        )
    if not histories:
        raise typer.Exit(1)


async def _find(runtime: "Runtime", name: str, message_id: list[str], tenant: str | None) -> "list[History]":
    from consumer_idem.history import Histories, named

    handlers = named(runtime.handlers, name)
    histories = Histories(runtime.database, runtime.settings.schema_name)
    try:
        await runtime.open_database()
        return [history for handler in handlers for history in await histories.find(handler, message_id, tenant)]
    finally:
        await runtime.close()

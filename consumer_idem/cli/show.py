"""`consumer-idem show`: what happened to a message."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from consumer_idem.cli.options import AppPath, AsJson, Database, Schema, flags

if TYPE_CHECKING:
    from consumer_idem.history import History
    from consumer_idem.ports import Row
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

    What could not be read has no id; entries in quarantine whose text holds this one are told as a guess.

    Exit status 1 if nothing is known of it. Example: consumer-idem show shop.payments:app checkout 4711
    """
    import asyncio

    from consumer_idem.cli.load import load
    from consumer_idem.cli.told import as_guess, as_lines, as_objects

    runtime = load(app).runtime(flags(database=database, schema_name=schema))
    histories, guessed = asyncio.run(_find(runtime, name, message_id, tenant))
    id = "|".join(message_id)
    if as_json:
        typer.echo(as_objects(histories, guessed))
    elif histories or guessed:
        typer.echo("\n".join([line for history in histories for line in as_lines(history)] + list(as_guess(guessed, id))))
    else:
        typer.echo(f"No handler has settled {id}, and no entry in quarantine has this id, or holds its text and has none.", err=True)
    if not histories and not guessed:
        raise typer.Exit(1)


async def _find(runtime: "Runtime", name: str, message_id: list[str], tenant: str | None) -> "tuple[list[History], Sequence[Row]]":
    """Return what is known by the id, and what entries without an id hold its text."""
    from consumer_idem.history import Histories, named

    handlers = named(runtime.handlers, name)
    histories = Histories(runtime.database, runtime.settings.schema_name)
    try:
        await runtime.open_database()
        found = [history for handler in handlers for history in await histories.find(handler, message_id, tenant)]
        return found, await histories.guess(runtime.group, handlers, message_id)
    finally:
        await runtime.close()

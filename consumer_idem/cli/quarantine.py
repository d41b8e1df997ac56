"""`consumer-idem quarantine`: what needs a person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consumer_idem.cli.options import AsJson, Database, Schema
from consumer_idem.cli.store import reading, settings_of

if TYPE_CHECKING:
    from consumer_idem.ports import Row
    from consumer_idem.settings import Settings

quarantine = typer.Typer(help="Look at what is in quarantine.", no_args_is_help=True)


@quarantine.command("list")
def list_(
    reason: Annotated[str | None, typer.Option(help="Only entries of this reason, e.g. conflict.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most entries to list.")] = 50,
    database: Database = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """List the open entries, oldest first."""
    import asyncio

    from consumer_idem.cli import told

    entries = asyncio.run(_list(settings_of(database, schema), reason, limit))
    if as_json:
        typer.echo(told.as_json([dict(entry) for entry in entries]))
        return
    for entry in entries:
        typer.echo(f"{told.entry_line(entry)} Message {entry['message_id'] or 'without a known id'}.")
    if not entries:
        typer.echo("Nothing is in quarantine.")


@quarantine.command("show")
def show_entry(
    id: Annotated[int, typer.Argument(metavar="ID", help="The number of the entry.", show_default=False)],
    database: Database = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Show one entry with its key, value and headers; exit status 1 if there is none."""
    import asyncio

    from consumer_idem.cli import told

    entry = asyncio.run(_read(settings_of(database, schema), id))
    if entry is None:
        typer.echo(f"There is no entry {id}.", err=True)
        raise typer.Exit(1)
    readable = {name: _readable(value) for name, value in entry.items()}
    typer.echo(
        told.as_json(readable) if as_json else "\n".join(f"{name:<15} {value}" for name, value in readable.items() if value is not None)
    )


def _readable(value: Any) -> Any:
    """Bytes are shown as text where they are, with escapes elsewhere: a terminal must not be driven by a message."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in value) if isinstance(value, str) else value


async def _list(settings: "Settings", reason: str | None, limit: int) -> "Sequence[Row]":
    from consumer_idem.quarantine.table import Matching, Quarantine

    async with reading(settings) as connection:
        return await Quarantine(settings.schema_name).list(connection, Matching(reason=reason), limit=limit)


async def _read(settings: "Settings", id: int) -> "Row | None":
    from consumer_idem.quarantine.table import Quarantine

    async with reading(settings) as connection:
        return await Quarantine(settings.schema_name).read(connection, id)

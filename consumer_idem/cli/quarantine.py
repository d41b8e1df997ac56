"""`consumer-idem quarantine`: what needs a person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consumer_idem.cli.decide import discard, release
from consumer_idem.cli.filters import Handler, MessageId, Reason, Since, State, Topic, matching
from consumer_idem.cli.options import AsJson, Database, Schema
from consumer_idem.cli.store import reading, settings_of

if TYPE_CHECKING:
    from consumer_idem.ports import Row
    from consumer_idem.quarantine.table import Matching
    from consumer_idem.settings import Settings

quarantine = typer.Typer(help="Look at what is in quarantine, and decide about it.", no_args_is_help=True)


@quarantine.command("list")
def list_(
    reason: Reason = None,
    handler: Handler = None,
    topic: Topic = None,
    since: Since = None,
    message_id: MessageId = None,
    state: Annotated[State, typer.Option(help="Only entries in this state.")] = State.OPEN,
    entries: Annotated[bool, typer.Option("--entries", help="List single entries instead of groups.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 50,
    database: Database = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """List what is in quarantine: groups of one reason, handler and error, the latest first; or entries, the oldest first.

    Errors that differ only in numbers, ids and quoted values are one group; … stands for what differs.
    """
    import asyncio

    from consumer_idem.cli import told
    from consumer_idem.cli.entries import group_lines, group_object, in_one_line, more_lines

    wanted = matching(reason, handler, topic, since, message_id, None if state == State.ALL else state.value)
    found, total = asyncio.run(_list(settings_of(database, schema), wanted, entries, limit))
    if as_json:
        typer.echo(told.as_json([group_object(row) for row in found]))
    elif found:
        typer.echo("\n".join(in_one_line(row) if entries else group_lines(row) for row in found))
    else:
        typer.echo("Nothing like this is in quarantine.")
    for line in more_lines(len(found), total, "entries" if entries else "groups"):
        typer.echo(line, err=as_json)


@quarantine.command("show")
def show_entry(
    id: Annotated[int, typer.Argument(metavar="ID", help="The number of the entry.", show_default=False)],
    value: Annotated[bool, typer.Option("--value", help="Write the message's value as it is, and nothing else.")] = False,
    database: Database = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Show an entry: its message, the copy that holds its key, its duplicates, what was done; exit status 1 if there is none."""
    import asyncio

    from consumer_idem.cli import told
    from consumer_idem.cli.entries import as_object, shown

    evidence = asyncio.run(_evidence(settings_of(database, schema), id))
    if evidence is None:
        typer.echo(f"There is no entry {id}.", err=True)
        raise typer.Exit(1)
    if value:
        typer.echo(evidence["entry"]["value"] or b"", nl=False)
    else:
        typer.echo(told.as_json(as_object(evidence)) if as_json else "\n".join(shown(evidence)))


quarantine.command()(release)
quarantine.command()(discard)


async def _list(settings: "Settings", wanted: "Matching", entries: bool, limit: int) -> "tuple[Sequence[Row], int]":
    """Return the rows to list, and how many there are in all."""
    from consumer_idem.quarantine.table import Quarantine

    table = Quarantine(settings.schema_name)
    async with reading(settings) as connection:
        groups = await table.group(connection, wanted, limit=1 if entries else limit)
        if not groups:
            return [], 0
        if entries:
            return await table.list(connection, wanted, limit=limit), groups[0]["all_entries"]
        return groups, groups[0]["all_groups"]


async def _evidence(settings: "Settings", id: int) -> dict[str, Any] | None:
    from consumer_idem.inbox.table import Inbox
    from consumer_idem.quarantine.table import Quarantine

    table, inbox = Quarantine(settings.schema_name), Inbox(settings.schema_name)
    async with reading(settings) as connection:
        entry = await table.read(connection, id)
        if entry is None:
            return None
        key = entry["key_hash"]
        return {
            "entry": entry,
            "held_by": None if key is None else await inbox.find(connection, key),
            "duplicates": () if key is None else await inbox.repeats(connection, key),
            "audit": await table.audited(connection, id),
        }

"""`consumer-idem quarantine release` and `discard`: what a person decides about entries."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consumer_idem.cli.audit import By, Yes, operator, said
from consumer_idem.cli.filters import Handler, MessageId, Reason, Since, Topic, matching
from consumer_idem.cli.options import Database, Schema, flags
from consumer_idem.cli.store import reading, settings_of

if TYPE_CHECKING:
    from consumer_idem.consumer.release import Answer
    from consumer_idem.consumer.reread import Order
    from consumer_idem.ports import Connection
    from consumer_idem.quarantine.table import Matching
    from consumer_idem.runtime import Runtime
    from consumer_idem.settings import Settings

_PAGE = 1000


class As(StrEnum):
    """What a conflict is handled as."""

    NEW_ID = "new-id"


Ids = Annotated[list[int] | None, typer.Argument(metavar="ID…", help="The numbers of the entries.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="All open entries that match the filters, instead of IDs. Shows them first.")]


def release(
    app: Annotated[str, typer.Option(metavar="MODULE:APP", help="Where the App with the handlers is.", show_default=False)],
    ids: Ids = None,
    edit: Annotated[
        Path | None,
        typer.Option(metavar="FILE|-", help="Give the handler this payload instead; the entry keeps the original.", show_default=False),
    ] = None,
    as_: Annotated[
        As | None,
        typer.Option(
            "--as",
            metavar="new-id",
            help="Written as it stands, --as new-id: handle a conflict as a message of its own. Its id is made of the one it came under, "
            "such as 4711#released-2.",
            show_default=False,
        ),
    ] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit trail. Required by --edit and --as.")] = "",
    by: By = None,
    everything: Everything = False,
    reason: Reason = None,
    handler: Handler = None,
    topic: Topic = None,
    since: Since = None,
    message_id: MessageId = None,
    yes: Yes = False,
    database: Database = None,
    schema: Schema = None,
) -> None:
    """Run the handler now, and print what came of it. Releasing twice is safe: the second time it says duplicate.

    Exit status 1 if an entry stays open. Example: consumer-idem quarantine release 7 8 --app shop.payments:app
    A conflict: consumer-idem quarantine release 2 --app shop.payments:app --as new-id --note "both are meant"
    """
    import asyncio

    from consumer_idem.cli.load import load
    from consumer_idem.consumer.reread import Order

    chosen = _chosen(ids, everything, matching(reason, handler, topic, since, message_id))
    if edit is not None and (everything or len(ids or ()) != 1):
        raise typer.BadParameter("One payload is for one entry: give its ID.", param_hint="--edit")
    if (edit or as_) and not note.strip():
        raise typer.BadParameter("What changes a message needs a note for the audit trail.", param_hint="--note")
    order = Order(operator=operator(by), note=said(note), edited=_payload(edit), new_id=as_ is not None)
    runtime = load(app).runtime(flags(database=database, schema_name=schema))
    if not asyncio.run(_release(runtime, ids or chosen, order, dry=everything and not yes)):
        raise typer.Exit(1)


def discard(
    why: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.", show_default=False)],
    ids: Ids = None,
    by: By = None,
    everything: Everything = False,
    only: Annotated[
        str | None, typer.Option(metavar="REASON", help="Only entries quarantined for this reason, e.g. conflict.", show_default=False)
    ] = None,
    handler: Handler = None,
    topic: Topic = None,
    since: Since = None,
    message_id: MessageId = None,
    yes: Yes = False,
    database: Database = None,
    schema: Schema = None,
) -> None:
    """Close entries for good, without running a handler. Their keys stay taken: equal copies are skipped.

    Exit status 1 if one of the IDs was not open.
    """
    import asyncio

    chosen = _chosen(ids, everything, matching(only, handler, topic, since, message_id))
    if everything and chosen == matching(None, None, None, None, None):
        raise typer.BadParameter("--all would discard every open entry. Add a filter: --only REASON, --handler, --topic, --since.")
    if not why.strip():
        raise typer.BadParameter("Say why.", param_hint="--reason")
    settings = settings_of(database, schema)
    if not asyncio.run(_discard(settings, ids or chosen, operator(by), said(why), dry=everything and not yes)):
        raise typer.Exit(1)


# What the flags mean


def _chosen(ids: list[int] | None, everything: bool, wanted: "Matching") -> "Matching":
    from consumer_idem.quarantine.table import Matching

    if bool(ids) == everything:
        raise typer.BadParameter("Give the IDs of entries, or --all with filters.")
    if ids and wanted != Matching():
        raise typer.BadParameter("Filters go with --all, not with IDs.")
    return wanted


def _payload(file: Path | None) -> bytes | None:
    import sys

    if file is None:
        return None
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.", param_hint="--edit") from None


# Doing it


async def _release(runtime: "Runtime", chosen: "list[int] | Matching", order: "Order", *, dry: bool) -> bool:
    """Release the entries, or tell which they would be; return whether none of them stays open."""
    from consumer_idem.cli.entries import answered, settles
    from consumer_idem.transaction.short import short

    try:
        releaser = await runtime.releaser()
        async with short(runtime.database, runtime.settings.schema_name) as connection:
            ids = await _ids(connection, runtime.settings.schema_name, chosen, "release" if dry else None)
        answers: list[Answer] = []
        for id in () if dry else ids:
            answers.append(await releaser.release(id, order))
            typer.echo(answered(answers[-1]))
        return all(map(settles, answers))
    finally:
        await runtime.close()


async def _discard(settings: "Settings", chosen: "list[int] | Matching", who: str, why: str, *, dry: bool) -> bool:
    from consumer_idem.quarantine.table import Quarantine

    async with reading(settings) as connection:
        ids = await _ids(connection, settings.schema_name, chosen, "discard" if dry else None)
        discarded = set() if dry else set(await Quarantine(settings.schema_name).discard(connection, ids, operator=who, note=why))
    for id in () if dry else ids:
        typer.echo(f"#{id} discarded" if id in discarded else f"#{id} was not open")
    return dry or len(discarded) == len(set(ids))


async def _ids(connection: "Connection", schema: str, chosen: "list[int] | Matching", would: str | None) -> list[int]:
    """Return the ids of the entries that are meant, oldest first; `would`: tell what would be done to them."""
    from consumer_idem.cli.entries import group_lines, more_lines
    from consumer_idem.quarantine.table import Quarantine

    if isinstance(chosen, list):
        return chosen
    table, ids = Quarantine(schema), list[int]()
    while page := await table.list(connection, chosen, above=ids[-1] if ids else 0, limit=_PAGE):
        ids += [row["id"] for row in page]
    if would is not None:
        groups = await table.group(connection, chosen)
        for line in (*map(group_lines, groups), *more_lines(len(groups), groups[0]["all_groups"] if groups else 0, "groups")):
            typer.echo(line)
        typer.echo(f"Would {would} {len(ids)} entries. Add --yes to do it." if ids else f"There is nothing to {would}.")
    return ids

"""`consumer-idem outbox`: what waits to be published, and what a person decides about it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from consumer_idem.cli.audit import By, Yes, operator, said
from consumer_idem.cli.options import AsJson, Database, Schema
from consumer_idem.cli.store import opened, reading, settings_of

if TYPE_CHECKING:
    from consumer_idem.outbox.operators import Status, StoredRecord
    from consumer_idem.ports import Database as Store
    from consumer_idem.ports import Row
    from consumer_idem.settings import Settings

outbox = typer.Typer(help="Look at what waits to be published, and decide about what cannot be.", no_args_is_help=True)

_PAGE = 1000
"""So many records share a transaction, so that no row is locked for long."""


class Why(StrEnum):
    """Why a record is still in the outbox."""

    PENDING = "pending"
    PARKED = "parked"
    BLOCKED = "blocked"
    TOPIC_HELD = "topic-held"
    HELD = "held"


Ids = Annotated[list[int] | None, typer.Argument(metavar="ID…", help="The numbers of the records.", show_default=False)]
Topic = Annotated[str | None, typer.Option(metavar="NAME", help="Only records for this topic.", show_default=False)]


@outbox.command("list")
def list_(
    status: Annotated[Why | None, typer.Option(help="Only records in this status.", show_default=False)] = None,
    topic: Topic = None,
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 50,
    database: Database = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """List the records that are not published yet, the oldest first, and why each still waits."""
    import asyncio

    from consumer_idem.cli import told
    from consumer_idem.cli.records import record_line, record_object

    listed = asyncio.run(_list(settings_of(database, schema), _Choice(status, topic), limit + 1))
    found = listed[:limit]
    if as_json:
        typer.echo(told.as_json([record_object(each) for each in found]))
    else:
        typer.echo("\n".join(map(record_line, found)) or "Nothing like this is in the outbox.")
    if len(listed) > limit:
        typer.echo(f"… and more: these are the oldest {limit}. --limit lists more, --status and --topic choose.", err=as_json)


@outbox.command("show")
def show_record(
    id: Annotated[int, typer.Argument(metavar="ID", help="The number of the record.", show_default=False)],
    value: Annotated[bool, typer.Option("--value", help="Write the record's value as it is, and nothing else.")] = False,
    database: Database = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Show a record with its value, its headers and what was done to it; exit status 1 if it is not in the outbox."""
    import asyncio

    from consumer_idem.cli import told
    from consumer_idem.cli.records import act_lines, record_object, record_shown

    record, audit = asyncio.run(_show(settings_of(database, schema), id))
    if record is None:
        typer.echo("\n".join([f"There is no record {id}: it was published or dropped, or never written.", *act_lines(audit)]), err=True)
        raise typer.Exit(1)
    if value:
        typer.echo(record.value or b"", nl=False)
    else:
        typer.echo(told.as_json(record_object(record, audit)) if as_json else "\n".join(record_shown(record, audit)))


@outbox.command()
def retry(
    ids: Ids = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit trail.", show_default=False)] = "",
    by: By = None,
    everything: Annotated[bool, typer.Option("--all", help="All parked records, or those for --topic. Shows them first.")] = False,
    topic: Topic = None,
    yes: Yes = False,
    database: Database = None,
    schema: Schema = None,
) -> None:
    """Let the relay try parked records again, in their old place in the order.

    Exit status 1 if one of the IDs was not parked. Example: consumer-idem outbox retry 17 --reason "limit raised"
    """
    chosen = _chosen(ids, everything, _Choice(Why.PARKED, topic), filtered=topic is not None)
    _decide(_Act("retry", "retried", "was not parked", operator(by), said(reason)), settings_of(database, schema), chosen, yes=yes)


@outbox.command()
def drop(
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit trail.", show_default=False)],
    ids: Ids = None,
    by: By = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All records in --status, by default the parked ones. Shows them first.")
    ] = False,
    status: Annotated[Why | None, typer.Option(help="With --all: records in this status.", show_default=False)] = None,
    topic: Topic = None,
    yes: Yes = False,
    database: Database = None,
    schema: Schema = None,
) -> None:
    """Delete records without publishing them, and free their keys. Whoever consumes the topic never sees them.

    Exit status 1 if one of the IDs was not there. Records that a replay holds are not dropped.
    """
    if not reason.strip():
        raise typer.BadParameter("Say why.", param_hint="--reason")
    if status is Why.HELD:
        raise typer.BadParameter("What a replay holds belongs to it.", param_hint="--status")
    chosen = _chosen(ids, everything, _Choice(status or Why.PARKED, topic), filtered=bool(status or topic))
    act = _Act("drop", "dropped", "was not there, or belongs to a replay", operator(by), said(reason))
    _decide(act, settings_of(database, schema), chosen, yes=yes)


# What the flags mean


@dataclass(frozen=True, slots=True)
class _Choice:
    status: Why | None
    topic: str | None

    def stored(self) -> "Status | None":
        """Return the status as the library names it."""
        from consumer_idem.outbox.operators import Status

        return None if self.status is None else Status(self.status)


@dataclass(frozen=True, slots=True)
class _Act:
    verb: str
    done: str
    not_done: str
    operator: str
    reason: str


def _chosen(ids: list[int] | None, everything: bool, wanted: _Choice, *, filtered: bool) -> list[int] | _Choice:
    if bool(ids) == everything:
        raise typer.BadParameter("Give the IDs of records, or --all.")
    if ids and filtered:
        raise typer.BadParameter("Filters go with --all, not with IDs.")
    return list(dict.fromkeys(ids)) if ids else wanted


# Doing it


def _decide(act: _Act, settings: "Settings", chosen: list[int] | _Choice, *, yes: bool) -> None:
    import asyncio

    if isinstance(chosen, _Choice):
        asyncio.run(_all(act, settings, chosen, dry=not yes))
    elif not asyncio.run(_these(act, settings, chosen)):
        raise typer.Exit(1)


async def _these(act: _Act, settings: "Settings", ids: Sequence[int]) -> bool:
    """Do it to these records; return whether it was done to each."""
    async with _verified(settings) as database:
        done = await _act(act, database, settings.schema_name, ids)
    for id in ids:
        typer.echo(f"#{id} {act.done if id in done else act.not_done}")
    return len(done) == len(ids)


async def _all(act: _Act, settings: "Settings", wanted: _Choice, *, dry: bool) -> None:
    """Do it to all that match, or tell which they would be."""
    from consumer_idem.cli.records import Summary

    summary, ids = Summary(), list[int]()
    async with _verified(settings) as database:
        # All of them first: records that are written meanwhile are nobody's choice.
        async for page in _pages(database, settings.schema_name, wanted):
            summary.add(page)
            ids += [each.id for each in page]
        pages = () if dry else [ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE)]
        done = sum([len(await _act(act, database, settings.schema_name, page)) for page in pages])
    for line in summary.lines() if dry else ():
        typer.echo(line)
    if not dry:
        typer.echo(f"{done} records {act.done}.")
    else:
        typer.echo(f"Would {act.verb} {len(ids)} records. Add --yes to do it." if ids else f"There is nothing to {act.verb}.")


async def _act(act: _Act, database: "Store", schema: str, ids: Sequence[int]) -> set[int]:
    from consumer_idem.outbox.operators import OutboxDesk
    from consumer_idem.transaction.short import short

    desk = OutboxDesk(schema)
    verb = desk.retry if act.verb == "retry" else desk.drop
    async with short(database, schema) as connection:
        return set(await verb(connection, ids, operator=act.operator, reason=act.reason))


async def _pages(database: "Store", schema: str, wanted: _Choice) -> "AsyncGenerator[Sequence[StoredRecord]]":
    from consumer_idem.outbox.operators import OutboxDesk
    from consumer_idem.transaction.short import short

    desk, above = OutboxDesk(schema), 0
    while True:
        async with short(database, schema) as connection:
            page = await desk.list(connection, status=wanted.stored(), topic=wanted.topic, above=above, limit=_PAGE)
        if not page:
            return
        above = page[-1].id
        yield page


async def _list(settings: "Settings", wanted: _Choice, limit: int) -> "Sequence[StoredRecord]":
    from consumer_idem.outbox.operators import OutboxDesk

    async with reading(settings) as connection:
        return await OutboxDesk(settings.schema_name).list(connection, status=wanted.stored(), topic=wanted.topic, limit=limit)


async def _show(settings: "Settings", id: int) -> "tuple[StoredRecord | None, Sequence[Row]]":
    from consumer_idem.outbox.operators import OutboxDesk

    desk = OutboxDesk(settings.schema_name)
    async with reading(settings) as connection:
        return await desk.show(connection, id), await desk.audited(connection, id)


@asynccontextmanager
async def _verified(settings: "Settings") -> "AsyncGenerator[Store]":
    from consumer_idem.schema import verify

    async with opened(settings) as database:
        await verify(database, settings.schema_name)
        yield database

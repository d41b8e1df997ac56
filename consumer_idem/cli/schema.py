"""`consumer-idem schema`: the library's tables."""

from typing import TYPE_CHECKING

import typer

from consumer_idem.cli.options import Database, Schema
from consumer_idem.cli.store import opened, settings_of

if TYPE_CHECKING:
    from consumer_idem.settings import Settings

schema = typer.Typer(help="Install and verify the library's tables.", no_args_is_help=True)


@schema.command()
def install(database: Database = None, schema: Schema = None) -> None:
    """Make the tables, or bring them up to date. Harmless to repeat, also from several processes at once."""
    import asyncio

    settings = settings_of(database, schema)
    done = asyncio.run(_install(settings))
    what = f"migrations {', '.join(map(str, done))} installed" if done else "up to date"
    typer.echo(f"Schema {settings.schema_name}: {what}.")


@schema.command()
def verify(database: Database = None, schema: Schema = None) -> None:
    """Check whether this version works with the tables that are there; exit status 1 if not."""
    import asyncio

    from consumer_idem.errors import SchemaMissing, SchemaOutdated

    settings = settings_of(database, schema)
    try:
        asyncio.run(_verify(settings))
    except (SchemaMissing, SchemaOutdated) as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(1) from problem
    typer.echo(f"Schema {settings.schema_name}: as this version needs it.")


@schema.command()
def sql(schema: Schema = None) -> None:
    """Print the tables as one SQL script, for those who install by other means."""
    from consumer_idem.schema import script

    typer.echo(script(settings_of(None, schema).schema_name))


async def _install(settings: "Settings") -> list[int]:
    from consumer_idem.schema import install

    async with opened(settings) as database:
        return await install(database, settings.schema_name)


async def _verify(settings: "Settings") -> None:
    from consumer_idem.schema import verify

    async with opened(settings) as database:
        await verify(database, settings.schema_name)

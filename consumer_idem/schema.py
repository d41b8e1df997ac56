"""Installing and verifying the library's tables."""

from consumer_idem.errors import SchemaMissing, SchemaOutdated
from consumer_idem.ports import Database
from consumer_idem.sql import Queries, command, migrations
from consumer_idem.transaction.short import short


async def installed_version(database: Database, schema: str) -> int:
    """Return the number of the newest migration that is installed, 0 if there is none."""
    async with short(database, schema) as connection:
        exists = await connection.fetch(Queries("migrations", schema)["exists"])
        if not exists[0]["exists"]:
            return 0
        return int((await connection.fetch(Queries("migrations", schema)["version"]))[0]["version"] or 0)


async def install(database: Database, schema: str) -> list[int]:
    """Run every migration that is not installed yet, each in a transaction of its own; return their numbers.

    Several processes may do so at the same time: they wait for each other.
    """
    done = []
    for number, script in migrations(schema).items():
        async with short(database, schema) as connection:
            await connection.execute(Queries("migrations", schema)["lock"])
            exists = (await connection.fetch(Queries("migrations", schema)["exists"]))[0]["exists"]
            installed = int((await connection.fetch(Queries("migrations", schema)["version"]))[0]["version"] or 0) if exists else 0
            if number > installed:
                await connection.execute(script)
                done.append(number)
    return done


async def verify(database: Database, schema: str) -> None:
    """Raise SchemaMissing or SchemaOutdated if this build cannot work with the tables that are installed."""
    newest = max(migrations(schema))
    installed = await installed_version(database, schema)
    install_it = f"Run {command('schema install', schema)}."
    if not installed:
        raise SchemaMissing(f"The tables of consumer_idem do not exist in schema {schema!r}. {install_it}")
    if installed < newest:
        raise SchemaOutdated(f"Schema {schema!r} is at migration {installed}, this build needs {newest}. {install_it}")
    if installed > newest:
        async with short(database, schema) as connection:
            works_from = int((await connection.fetch(Queries("migrations", schema)["works_from"]))[0]["works_from"])
        if works_from > newest:
            raise SchemaOutdated(
                f"Schema {schema!r} is at migration {installed} and works with builds from {works_from} on; this build knows {newest}. "
                "Install a newer consumer_idem."
            )


def script(schema: str) -> str:
    """Return all migrations as one SQL script, for those who install by other means."""
    return "\n".join(migrations(schema).values())

"""Named .sql files and migrations. One statement, one file, one method, one verb; no SQL in Python."""

import re
from functools import cache
from importlib import resources

from consumer_idem.errors import DeclarationError

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")


DEFAULT_SCHEMA = "idem"


def command(words: str, schema: str) -> str:
    """Return a command to be run on this schema's tables, as a hint writes it."""
    return f"`consumer-idem {words}`" if schema == DEFAULT_SCHEMA else f"`consumer-idem {words} --schema {schema}`"


def valid_schema(schema: str) -> str:
    """Return `schema` if it is a plain lower-case identifier; raise DeclarationError if not."""
    if not _IDENTIFIER.fullmatch(schema):
        raise DeclarationError(f"Schema {schema!r} is not a plain lower-case identifier of at most 63 characters.")
    return schema


@cache
def _text(package: str, name: str, schema: str) -> str:
    text = resources.files(f"consumer_idem.{package}").joinpath(f"{name}.sql").read_text("utf-8")
    return text.replace("{schema}", valid_schema(schema))


class Queries:
    """The .sql files of one part, with the schema's name filled in: `Queries("inbox", "idem")["claim"]`."""

    __slots__ = ("_package", "schema")

    def __init__(self, part: str, schema: str) -> None:
        self._package = f"{part}.queries"
        self.schema = valid_schema(schema)

    def __getitem__(self, name: str) -> str:
        return _text(self._package, name, self.schema)


def migrations(schema: str) -> dict[int, str]:
    """Return the text of every migration by its number, in order."""
    folder = resources.files("consumer_idem.migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {int(name[:3]): _text("migrations", name.removesuffix(".sql"), schema) for name in names}

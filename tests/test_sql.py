"""The named statements and migrations."""

import asyncpg
import pytest

from consumer_idem import sql
from consumer_idem.errors import DeclarationError


@pytest.mark.parametrize("schema", ["idem", "_x", "a1_b2", "a" * 63])
def test_a_plain_schema_name_is_taken(schema: str) -> None:
    assert sql.valid_schema(schema) == schema


@pytest.mark.parametrize("schema", ["", "Idem", "1a", "a-b", "a b", 'a"b', "a;drop", "ä", "a" * 64, "idem\n"])
def test_any_other_schema_name_is_refused_and_named(schema: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        sql.valid_schema(schema)

    assert repr(schema) in str(caught.value)


def test_migrations_come_in_order_without_a_gap_and_with_the_schema_filled_in() -> None:
    found = sql.migrations("other")

    assert list(found) == list(range(1, len(found) + 1))
    assert all("{schema}" not in text for text in found.values())
    assert "CREATE TABLE other.inbox" in found[1]


def test_a_statement_of_another_schema_is_another_text() -> None:
    with pytest.raises(DeclarationError):
        sql.Queries("inbox", "No")
    one, other = (sql.Queries("inbox", schema)["claim"] for schema in ("one", "other"))

    assert "one.inbox" in one
    assert one.replace("one.", "other.") == other


async def test_the_migrations_install_beside_each_other_in_two_schemas(empty_dsn: str) -> None:
    connection = await asyncpg.connect(empty_dsn)
    for schema in ("idem", "other"):
        for script in sql.migrations(schema).values():
            await connection.execute(script)

    tables = {
        schema: await connection.fetch(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, 2", schema
        )
        for schema in ("idem", "other")
    }

    assert tables["idem"] == tables["other"]
    assert {"inbox", "progress", "outbox", "quarantine"} <= {row["table_name"] for row in tables["idem"]}
    await connection.close()

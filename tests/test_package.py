"""What `import consumer_idem` gives, and what it costs."""

import subprocess
import sys

import pytest

import consumer_idem

LAZY = (
    "aiokafka", "confluent_kafka", "asyncpg", "pydantic", "pydantic_core", "pydantic_settings", "sqlalchemy", "testcontainers", "docker",
    "typer", "rich", "opentelemetry.sdk", "pytest",
)  # fmt: skip


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_it_imports_no_client_no_pydantic_and_nothing_that_only_a_command_needs() -> None:
    program = f"import sys, consumer_idem\n[getattr(consumer_idem, n) for n in {public_names()!r}]\n"

    assert run(program + f"print([m for m in {LAZY!r} if m in sys.modules])") == "[]"


def test_pydantic_comes_with_the_first_source_and_not_with_what_it_is_declared_by() -> None:
    program = """
import sys
from dataclasses import dataclass
from consumer_idem import App, Fingerprint, Outbox, PendingRecord, Source, field, header

@dataclass
class Payment:
    id: str

app, outbox, record = App(group="payments"), Outbox(), PendingRecord(topic="payments", source="shop", value=b"{}")
place, fingerprint = field("id"), Fingerprint("id", header("version"), pepper="secret")
before = "pydantic" in sys.modules
Source("checkout", model=Payment, message_id=place, fingerprint=fingerprint)
print(before, "pydantic" in sys.modules)
"""

    assert run(program) == "False True"


def test_every_public_name_is_there() -> None:
    assert [name for name in public_names() if not hasattr(consumer_idem, name)] == []


def test_a_private_or_unknown_name_is_not() -> None:
    with pytest.raises(AttributeError):
        _ = consumer_idem.nothing  # type: ignore[attr-defined]


def public_names() -> list[str]:
    return list(getattr(consumer_idem, "__all__", []))

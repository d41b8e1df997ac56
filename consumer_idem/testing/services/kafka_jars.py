"""Apache Kafka's own jars, resolved by Maven once and kept in a cache folder of the user."""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from consumer_idem.testing.services.process import ServiceFailed

KAFKA_VERSION = "4.3.1"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>consumer-idem</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_JAVA_AT_LEAST = 17
# By default Maven waits half an hour for an answer that does not come.
_IMPATIENT = (
    "-Dmaven.wagon.rto=60000",
    "-Daether.connector.connectTimeout=20000",
    "-Daether.connector.requestTimeout=60000",
)


@cache
def java() -> str | None:
    """Return the path of a Java runtime that can run Kafka, None if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    return found if found and _major_version(found) >= _JAVA_AT_LEAST else None


def cached_jars() -> Path:
    """Return the folder in which the jars are kept, whether it exists or not."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_home) / "consumer-idem" / f"kafka-{KAFKA_VERSION}"


def can_resolve() -> bool:
    """Tell whether Kafka can be run here: a Java runtime, and the jars or a Maven to get them."""
    return java() is not None and (cached_jars().is_dir() or shutil.which("mvn") is not None)


def jars() -> Path:
    """Return the folder with Kafka's jars, resolving them first where it must be; raise ServiceFailed if that fails."""
    folder = cached_jars()
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="resolving-", dir=folder.parent) as work:
            _resolve(Path(work))
            _publish(Path(work) / "libs", folder)
    return folder


def _resolve(work: Path) -> None:
    (work / "pom.xml").write_text(_POM)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
    done = subprocess.run(["mvn", "-q", "-B", *_IMPATIENT, *goal], cwd=work, capture_output=True, text=True)
    if done.returncode != 0:
        raise ServiceFailed(f"Maven could not resolve Kafka {KAFKA_VERSION}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _publish(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        # Another process was first; its jars are the same.
        if not folder.is_dir():
            raise


def _major_version(path: str) -> int:
    text = subprocess.run([path, "-version"], capture_output=True, text=True).stderr
    _, _, rest = text.partition('version "')
    digits = rest.split('"')[0].split(".")[0].split("-")[0]
    return int(digits) if digits.isdigit() else 0

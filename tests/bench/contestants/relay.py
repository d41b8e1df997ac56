"""Our relay, as a user runs it: `consumer-idem relay`."""

import sys

from consumer_idem.cli import main as commands
from tests.bench.job import first_poll, read_job


def main() -> None:
    """Run the command line in this process."""
    job = read_job()
    first_poll()
    where = ["--database", job.dsn, "--kafka", job.bootstrap, "--client", job.options["client"]]
    sys.argv = ["consumer-idem", "relay", *where, "--log-level", "warning"]
    commands()


if __name__ == "__main__":
    main()

"""What the command line makes of a process that runs for long."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, gc, sys
{before}
from consumer_idem.cli.process import run_process

async def main():
    print(type(asyncio.get_running_loop()).__module__.partition(".")[0], gc.get_freeze_count() > 1000, gc.get_threshold()[0] > 700)

run_process(main())
"""


def shown(before: str = "") -> list[str]:
    program = PROGRAM.format(before=before)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_it_runs_on_uvloop_where_that_is_installed() -> None:
    pytest.importorskip("uvloop")

    assert shown()[0] == "uvloop"


def test_it_runs_without_uvloop() -> None:
    assert shown("sys.modules['uvloop'] = None")[0] == "asyncio"


def test_objects_of_the_start_are_not_walked_by_every_collection() -> None:
    assert shown()[1:] == ["True", "True"]


def test_a_command_does_not_walk_through_what_was_imported_before_it() -> None:
    program = "import gc, sys\nfrom consumer_idem.cli import main\nsys.argv = ['consumer-idem', '--version']\n"
    program += "try:\n    main()\nfinally:\n    print(gc.get_freeze_count() > 1000)"

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()

    assert shown[-1] == "True"


def test_what_the_process_raises_is_raised() -> None:
    program = "from consumer_idem.cli.process import run_process\nasync def main():\n    raise LookupError('lost')\nrun_process(main())"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert "LookupError: lost" in ended.stderr

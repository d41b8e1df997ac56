"""Child processes: watched, stopped, killed, and never left behind."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from consumer_idem.testing import ChildFailed, Supervisor, eventually

TICKING = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("ending"), sys.exit(3)))
print("ready")
n = 0
while True:
    n += 1
    print(f"tick {n}")
    time.sleep(0.02)
"""

FORKING = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
time.sleep(60)
"""


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    async with Supervisor() as supervisor:
        yield supervisor


async def test_lines_are_waited_for_one_behind_the_other(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", "print('a 1'); print('b'); print('a 2')")

    assert [await child.line("^a"), await child.line("^a")] == ["a 1", "a 2"]
    with pytest.raises(ChildFailed, match="ended before"):
        await child.line("^a")


async def test_errors_and_output_are_one_sequence_and_the_status_is_told(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", "import sys; print('out'); sys.stderr.write('err\\n'); sys.exit(5)")

    assert await child.wait() == 5
    assert child.output == ["out", "err"]


async def test_a_line_that_does_not_come_in_time_fails_with_what_came(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", TICKING)
    await child.line("ready")

    with pytest.raises(ChildFailed, match="printed no 'never'"):
        await child.line("never", timeout=0.1)


async def test_kill9_leaves_no_time_to_clean_up(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", TICKING)
    await child.line("ready")

    await child.kill9()

    assert child.status == -signal.SIGKILL
    assert "ending" not in child.output


async def test_terminate_lets_it_clean_up(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", TICKING)
    await child.line("ready")

    child.terminate()

    assert await child.wait() == 3
    assert child.output[-1] == "ending"


async def test_a_stopped_child_does_nothing_until_it_goes_on(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", TICKING)
    await child.line("tick 2")

    await child.stop()
    # What it had printed before it stood may be on its way still: the first of these reads it.
    for _ in range(2):
        before = len(child.output)
        with pytest.raises(ChildFailed):
            await child.line("tick 100000", timeout=0.3)
    assert len(child.output) == before
    child.go_on()

    await child.line("tick")


async def test_a_child_that_stops_itself_is_noticed(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP); print('on')")

    await child.until_stopped()
    child.go_on()

    await child.line("on")
    assert await child.wait() == 0


async def test_waiting_for_a_stop_fails_when_it_ends_instead(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", "pass")

    with pytest.raises(ChildFailed, match="ended with status 0 instead"):
        await child.until_stopped()


async def test_a_signal_to_a_child_that_has_ended_says_so(supervisor: Supervisor) -> None:
    child = await supervisor.start("-c", "pass", name="short")
    await child.wait()

    with pytest.raises(ChildFailed, match="short has already ended with status 0"):
        child.terminate()


async def test_the_environment_is_ours_the_supervisors_and_the_childs() -> None:
    async with Supervisor(env={"A": "supervisor", "B": "supervisor"}) as supervisor:
        program = "import os; print(os.environ['A'], os.environ['B'], os.environ['PATH'] != '')"
        child = await supervisor.start("-c", program, env={"B": "child"})

        assert await child.line("supervisor") == "supervisor child True"


async def test_all_children_are_gone_at_the_end_stopped_ones_and_their_own_children_too() -> None:
    async with Supervisor() as supervisor:
        ticking = await supervisor.start("-c", TICKING)
        await ticking.line("ready")
        await ticking.stop()
        parent = await supervisor.start("-c", FORKING)
        grandchild = int(await parent.line(r"^\d+$"))
        pids = [ticking.pid, grandchild]

    await eventually(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A killed grandchild may wait for somebody to take note of it.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()

"""Failpoints act where, when and as they are told, and cannot be switched on by accident."""

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from consumer_idem import failpoint
from consumer_idem.errors import ConsumerIdemError
from consumer_idem.failpoint import FailpointHit, reached
from consumer_idem.testing import Child, Supervisor
from consumer_idem.testing.deliver import crash_at

PROGRAM = """
import asyncio
from consumer_idem.failpoint import reached
async def main():
    for n in range(1, 5):
        await reached("seal.after")
        print(f"passed {n}")
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    failpoint.active.clear()


def activate(text: str) -> None:
    failpoint.active.update(failpoint.parse(text))


async def run(supervisor: Supervisor, text: str, enable: str = "1") -> Child:
    env = {"CONSUMER_IDEM_FAILPOINTS": text, "CONSUMER_IDEM_ENABLE_FAILPOINTS": enable}
    return await supervisor.start("-c", PROGRAM, env=env)


async def passes(times: int) -> int:
    passed = 0
    for _ in range(times):
        try:
            await reached("seal.after")
        except FailpointHit:
            continue
        passed += 1
    return passed


async def test_what_is_not_configured_does_nothing() -> None:
    activate("claim.after=raise")

    assert await passes(3) == 3


@pytest.mark.parametrize(("when", "expected"), [("", 0), ("@3", 4), ("@3+", 2), ("@1", 4), ("@9", 5)])
async def test_it_acts_always_or_the_nth_time_or_from_then_on(when: str, expected: int) -> None:
    activate(f"seal.after=raise{when}")

    assert await passes(5) == expected


async def test_several_are_separate() -> None:
    activate("seal.after=raise@2; commit.after=cancel ;")

    await reached("seal.after")
    with pytest.raises(asyncio.CancelledError):
        await reached("commit.after")
    with pytest.raises(FailpointHit):
        await reached("seal.after")


async def test_sleep_takes_its_seconds() -> None:
    activate("seal.after=sleep:0.2")
    started = time.monotonic()

    await reached("seal.after")

    assert 0.2 <= time.monotonic() - started < 2


async def test_hang_never_returns_but_can_be_cancelled() -> None:
    activate("seal.after=hang")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reached("seal.after"), 0.1)


@pytest.mark.parametrize(
    "text",
    [
        "seal.after",
        "seal.after=",
        "seal.after=explode",
        "seal.after=raise@",
        "seal.after=raise@x",
        "=raise",
        "seal.after=raise@1++",
        "a b=raise",
    ],
)
def test_what_is_not_understood_is_refused_and_named(text: str) -> None:
    with pytest.raises(ConsumerIdemError, match="is not NAME=ACTION") as caught:
        failpoint.parse(text)

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("name", ["seal.before", "commit", "crash"])
def test_a_name_that_is_not_there_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(ConsumerIdemError, match=f"no failpoint '{name}'. There are poll.after, .*, relay.after_settle"):
        failpoint.parse(f"seal.after=kill;{name}=kill")


async def test_a_process_with_a_name_that_is_not_there_does_not_start() -> None:
    async with Supervisor() as supervisor:
        child = await run(supervisor, "seal.before=kill")

        assert await child.wait() == 1
        assert "There is no failpoint 'seal.before'" in child.tail()


@pytest.mark.parametrize("point", ["seal.before", "poll.after", "relay.after_ack"])
def test_a_crash_where_a_delivery_never_comes_is_refused(point: str) -> None:
    with pytest.raises(ConsumerIdemError, match=f"comes to no failpoint '{point}'. It comes to begin.after, "):
        with crash_at(point):
            pass

    assert not failpoint.active


@pytest.mark.parametrize(("action", "status"), [("kill", -signal.SIGKILL), ("exit", 70)])
async def test_it_ends_the_process_at_once(action: str, status: int) -> None:
    async with Supervisor() as supervisor:
        child = await run(supervisor, f"seal.after={action}@3")

        assert await child.wait() == status
        assert child.output == ["passed 1", "passed 2"]


async def test_it_stops_the_process_which_then_goes_on() -> None:
    async with Supervisor() as supervisor:
        child = await run(supervisor, "seal.after=stop@2")

        await child.until_stopped()
        child.go_on()

        assert await child.wait() == 0
        assert child.output[-1] == "passed 4"


async def test_they_are_refused_where_they_are_not_enabled() -> None:
    async with Supervisor() as supervisor:
        child = await run(supervisor, "seal.after=kill", enable="0")

        assert await child.wait() == 1
        assert "CONSUMER_IDEM_ENABLE_FAILPOINTS is not 1" in child.tail()


async def test_enabled_without_any_is_harmless() -> None:
    async with Supervisor() as supervisor:
        child = await run(supervisor, "")

        assert await child.wait() == 0

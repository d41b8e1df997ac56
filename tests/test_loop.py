"""The one loop: works while there is work, sleeps when there is none, backs off when it fails, stops when told."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from consumer_idem.loop import Loop

LONG = timedelta(seconds=60)


class Duty:
    """Answers each run_once with the next of `answers`; stops its loop with the last one."""

    def __init__(self, *answers: int | BaseException) -> None:
        self.answers = list(answers)
        self.times: list[float] = []
        self.loop: Loop | None = None

    async def run_once(self) -> int:
        self.times.append(time.monotonic())
        answer = self.answers.pop(0)
        if not self.answers and self.loop is not None:
            self.loop.stop()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def loop_of(run_once: Callable[[], Awaitable[int]], *, idle: timedelta = LONG, max_backoff: timedelta = LONG) -> Loop:
    return Loop("duty", run_once, idle=idle, max_backoff=max_backoff)


async def run(duty: Duty, *, idle: timedelta = LONG, max_backoff: timedelta = LONG) -> None:
    duty.loop = loop_of(duty.run_once, idle=idle, max_backoff=max_backoff)
    await asyncio.wait_for(duty.loop.run(), 10)


async def test_it_runs_again_at_once_while_there_is_work() -> None:
    duty = Duty(1, 5, 2, 1)

    await run(duty)

    assert len(duty.times) == 4


async def test_it_sleeps_when_there_was_nothing_to_do() -> None:
    duty = Duty(0, 1)

    await run(duty, idle=timedelta(milliseconds=200))

    assert duty.times[1] - duty.times[0] >= 0.19


async def test_wake_ends_the_sleep() -> None:
    asleep = asyncio.Event()

    async def nothing() -> int:
        asleep.set()
        return 0

    loop = loop_of(nothing)
    running = asyncio.create_task(loop.run())
    await asleep.wait()
    asleep.clear()
    await asyncio.sleep(0)

    loop.wake()

    await asyncio.wait_for(asleep.wait(), 5)
    loop.stop()
    await asyncio.wait_for(running, 5)


async def test_a_wake_ends_one_sleep_and_not_the_next() -> None:
    runs = 0

    async def nothing() -> int:
        nonlocal runs
        runs += 1
        return 0

    loop = loop_of(nothing)
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    loop.wake()
    for _ in range(100):
        await asyncio.sleep(0)

    assert runs == 2
    loop.stop()
    await asyncio.wait_for(running, 5)


async def test_a_wake_during_the_work_is_not_lost() -> None:
    runs = 0

    async def woken_meanwhile() -> int:
        nonlocal runs
        runs += 1
        loop.wake()
        if runs == 2:
            loop.stop()
        return 0

    loop = loop_of(woken_meanwhile)

    await asyncio.wait_for(loop.run(), 5)

    assert runs == 2


async def test_stop_lets_the_work_at_hand_end() -> None:
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), False

    async def work() -> int:
        nonlocal ended
        begun.set()
        await go_on.wait()
        ended = True
        return 1

    loop = loop_of(work)
    running = asyncio.create_task(loop.run())
    await begun.wait()

    loop.stop()
    go_on.set()
    await asyncio.wait_for(running, 5)

    assert ended


async def test_a_loop_that_was_stopped_before_does_not_run() -> None:
    duty = Duty(1)
    loop = loop_of(duty.run_once)

    loop.stop()
    await loop.run()

    assert duty.times == []


async def test_a_failure_is_logged_with_its_count_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    duty = Duty(ValueError("first"), ValueError("second"), 1, ValueError("third"), 1)

    with caplog.at_level(logging.ERROR, logger="consumer_idem.loop"):
        await run(duty, max_backoff=timedelta(milliseconds=1))

    told = [record for record in caplog.records if record.name == "consumer_idem.loop"]
    assert [getattr(record, "failures", None) for record in told] == [1, 2, 1]
    assert all(record.exc_info and record.getMessage() == "duty failed" for record in told)


async def test_it_backs_off_with_jitter_up_to_the_limit() -> None:
    loop = loop_of(Duty(1).run_once, max_backoff=timedelta(seconds=1))

    early = [loop._backoff(1) for _ in range(200)]
    late = [loop._backoff(50) for _ in range(200)]

    assert max(early) <= 0.2
    assert 0.5 < max(late) <= 1
    assert len(set(late)) > 100


async def test_stop_ends_a_back_off() -> None:
    failed = asyncio.Event()

    async def fail() -> int:
        failed.set()
        raise ValueError

    loop = loop_of(fail)
    running = asyncio.create_task(loop.run())
    await failed.wait()

    loop.stop()

    await asyncio.wait_for(running, 5)


async def test_cancellation_passes_through() -> None:
    with pytest.raises(asyncio.CancelledError):
        await run(Duty(asyncio.CancelledError()))


async def test_the_first_call_comes_after_the_delay() -> None:
    duty = Duty(1)
    duty.loop = Loop("duty", duty.run_once, delay=timedelta(milliseconds=50))
    began = time.monotonic()
    await asyncio.wait_for(duty.loop.run(), 10)

    assert duty.times[0] - began >= 0.05


async def test_stop_ends_the_delay() -> None:
    duty = Duty(1)
    loop = Loop("duty", duty.run_once, delay=LONG)
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    loop.stop()
    await asyncio.wait_for(running, 5)

    assert duty.times == []

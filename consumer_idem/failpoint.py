"""Places where a test can make the process fail: `CONSUMER_IDEM_FAILPOINTS="commit.after=kill@3;seal.after=cancel"`.

Read once at import, refused unless CONSUMER_IDEM_ENABLE_FAILPOINTS=1. Without them a failpoint costs one comparison.
Actions: raise, cancel, kill (SIGKILL to itself), stop (SIGSTOP to itself), exit, hang, sleep:SECONDS. `@N` acts at the
N-th time only; `@N+` from the N-th time on.
"""

import asyncio
import os
import re
import signal
from dataclasses import dataclass

from consumer_idem.errors import ConsumerIdemError

_SPEC = re.compile(r"(?P<name>[\w.]+)=(?P<action>[a-z]+)(:(?P<seconds>[\d.]+))?(@(?P<at>\d+)(?P<on>\+)?)?")


IN_BATCH = (
    "begin.after",
    "claim.after",
    "handler.before",
    "handlers.after",
    "flush.after",
    "settle.after",
    "seal.after",
    "commit.after",
    "synchronizers.after",
)
"""Those on the way of one batch, in order."""
NAMES = (
    "poll.after",
    "mark.after",
    *IN_BATCH,
    "offsets.before",
    "offsets.after",
    "relay.before_publish",
    "relay.after_ack",
    "relay.after_settle",
)
"""All there are; docs/testing.md says where."""


class FailpointHit(ConsumerIdemError):
    """A failpoint raised this on purpose. Unset CONSUMER_IDEM_FAILPOINTS to stop it."""


@dataclass(slots=True)
class _Failpoint:
    action: str
    seconds: float
    at: int
    onwards: bool
    reached: int = 0

    def due(self) -> bool:
        self.reached += 1
        return self.at == 0 or self.reached == self.at or (self.onwards and self.reached > self.at)


def parse(text: str) -> dict[str, _Failpoint]:
    """Return the failpoints that `text` names; raise ConsumerIdemError where it is not understood, or names one that is not there."""
    points: dict[str, _Failpoint] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        match = _SPEC.fullmatch(part)
        if match is None or match["action"] not in _ACTIONS:
            raise ConsumerIdemError(f"Failpoint {part!r} is not NAME=ACTION[:SECONDS][@N[+]]; actions: {', '.join(_ACTIONS)}.")
        if match["name"] not in NAMES:
            raise ConsumerIdemError(f"There is no failpoint {match['name']!r}. There are {', '.join(NAMES)}.")
        points[match["name"]] = _Failpoint(match["action"], float(match["seconds"] or 0), int(match["at"] or 0), match["on"] == "+")
    return points


def _raise() -> None:
    raise FailpointHit


def _cancel() -> None:
    raise asyncio.CancelledError


def _signal(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


_ACTIONS = {
    "raise": _raise,
    "cancel": _cancel,
    "kill": lambda: _signal(signal.SIGKILL),
    "stop": lambda: _signal(signal.SIGSTOP),
    "exit": lambda: os._exit(70),
    "hang": None,
    "sleep": None,
}


def _from_environment() -> dict[str, _Failpoint]:
    text = os.environ.get("CONSUMER_IDEM_FAILPOINTS", "")
    if text and os.environ.get("CONSUMER_IDEM_ENABLE_FAILPOINTS") != "1":
        raise ConsumerIdemError("CONSUMER_IDEM_FAILPOINTS is set, but CONSUMER_IDEM_ENABLE_FAILPOINTS is not 1. Unset the former.")
    return parse(text)


active: dict[str, _Failpoint] = _from_environment()
"""The failpoints of this process. Tests in the same process may put some in and must take them out again."""


async def reached(name: str) -> None:
    """Act as configured for the failpoint `name`; do nothing if it is not configured or not yet due."""
    point = active.get(name)
    if point is None or not point.due():
        return
    if point.action == "hang":
        await asyncio.Event().wait()
    elif point.action == "sleep":
        await asyncio.sleep(point.seconds)
    else:
        action = _ACTIONS[point.action]
        assert action is not None
        action()

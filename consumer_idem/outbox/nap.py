"""When the relay may sleep until it is notified, and when adding a record costs a notification.

A relay that has nothing to do says so in its row, and transactions that add records notify it from then on. One that looked
at the row before it changed may still commit unheard, so sleep is sound only after all that were adding records at that
moment have ended, and one more read has seen all that there was.
"""

from enum import Enum, auto
from typing import NamedTuple

from consumer_idem.outbox.horizon import Horizon, Writers
from consumer_idem.outbox.lease import Lease

_MUCH = 20
"""Records in one read: so many come in so short a time that a notification for each transaction would cost more than it brings."""
_MUCH_FOR = 0.1
"""Seconds without a break after which notifications are no longer asked for, if there is much in a read."""
_LITTLE_FOR = 1.0
"""The same for reads with little in them, if they took half of the time."""
_BREAK = 0.01


class Look(NamedTuple):
    """What one read found, and when it was, on the monotonic clock."""

    records: int
    began: float
    ended: float
    complete: bool
    """It saw all that was committed when it began, but for held topics."""


class _State(Enum):
    AWAKE = auto()
    DOZING = auto()
    ASLEEP = auto()


class Nap:
    """The relay's sleep."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._state = _State.AWAKE
        self._horizon = Horizon()
        self._since = self._until = self._reading = 0.0

    @property
    def sound(self) -> bool:
        """Whether everything that is added will be heard."""
        return self._state is _State.ASLEEP

    @property
    def wants_writers(self) -> bool:
        """Whether knowing who is adding records would bring sleep nearer."""
        return self._state is _State.DOZING

    def observe(self, writers: Writers) -> None:
        """Take note of who is adding records now; no read may be under way."""
        if self._state is _State.DOZING:
            self._horizon.observe(writers)

    async def note(self, look: Look, *, sending: bool, can_hear: bool) -> None:
        """Take note of what a read found; doze when there is nothing to do, wake up when there is much."""
        busy = self._is_busy(look)
        if self._state is _State.AWAKE:
            if can_hear and not look.records and not sending:
                await self._lease.sleep(True)
                self._state, self._horizon = _State.DOZING, Horizon()
        elif not can_hear or busy:
            await self._lease.sleep(False)
            self._state = _State.AWAKE
        elif self._state is _State.DOZING and look.complete and self._horizon.passed:
            self._state = _State.ASLEEP

    def _is_busy(self, look: Look) -> bool:
        if look.began - self._until > _BREAK:
            self._since, self._reading = look.began, 0.0
        self._until = look.ended
        self._reading += look.ended - look.began
        lasted = look.ended - self._since
        if lasted <= _LITTLE_FOR:
            return look.records >= _MUCH and lasted > _MUCH_FOR
        busy = self._reading > lasted / 2
        self._since, self._reading = look.ended, 0.0
        return busy

    def disturb(self) -> None:
        """What the table says about us is not certain: begin again."""
        self._state = _State.AWAKE

"""When the relay may sleep until it is notified, and when adding a record costs a notification.

A relay that has nothing to do says so in its row, and transactions that add records notify it from then on. One that looked
at the row before it changed may still commit unheard, so sleep is sound only after all that were adding records at that
moment have ended, and one more read has found nothing.
"""

from enum import Enum, auto

from consumer_idem.outbox.horizon import Horizon, Writers
from consumer_idem.outbox.lease import Lease

_BUSY = 0.1
"""Seconds of work without a pause after which notifications are no longer asked for, if there is much in each read."""
_BUSY_WITH_LITTLE = 1.0
_MUCH = 20
"""Records in one read: so many come in so short a time that a notification for each transaction would cost more than it brings."""


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
        self._busy_since: float | None = None

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

    async def found(self, records: int, now: float, *, working: bool, can_hear: bool) -> None:
        """Take note of what a read found; doze when there is nothing to do, wake up when there is much."""
        idle = not records and not working
        self._busy_since = None if idle else self._busy_since or now
        if self._state is _State.AWAKE:
            if idle and can_hear:
                await self._lease.sleep(True)
                self._state, self._horizon = _State.DOZING, Horizon()
        elif not can_hear or self._is_busy(records, now):
            await self._lease.sleep(False)
            self._state = _State.AWAKE
        elif self._state is _State.DOZING and idle and self._horizon.passed:
            self._state = _State.ASLEEP

    def _is_busy(self, records: int, now: float) -> bool:
        if self._busy_since is None:
            return False
        return now - self._busy_since > (_BUSY if records >= _MUCH else _BUSY_WITH_LITTLE)

    def disturb(self) -> None:
        """What the table says about us is not certain: begin again."""
        self._state = _State.AWAKE

"""All records that the relay holds in memory, by topic. Pure: what may be read, what is sent, which topics are held."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from consumer_idem.outbox.entry import Entry, Unfit
from consumer_idem.outbox.lane import Backoff, Landing, Lane
from consumer_idem.ports import Delivery

_RETRY = Backoff(first=timedelta(milliseconds=25), most=timedelta(seconds=2))
_HOLD = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=15))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of one topic the relay holds in memory, and how long it waits before it tries again.

    A topic of which no more fits does not keep the others from being read.
    """

    batch: int = 2000
    """Records in one flight of a topic."""
    queue: int = 6000
    """Records of one topic in memory, above which no more of it are read."""
    bytes: int = 32 << 20
    """Value bytes of one topic in memory, above which no more of it are read; also the most in one read."""
    retry: Backoff = _RETRY
    hold: Backoff = _HOLD


@dataclass(slots=True)
class _Hold:
    failures: int
    until: float


class Window:
    """One lane per topic, and the topics that are held because they take no records now."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lanes: dict[str, Lane] = {}
        self._holds: dict[str, _Hold] = {}
        self._landed: dict[int, Entry] = {}
        self._unfit: dict[int, Unfit] = {}

    @property
    def sending(self) -> bool:
        """Whether anything is to be sent or to be answered."""
        return any(self._lanes.values())

    # Reading

    @property
    def held_topics(self) -> list[str]:
        """The topics that wait for their hold to end; they are not read meanwhile."""
        return [topic for topic, hold in self._holds.items() if hold.until]

    @property
    def full_topics(self) -> list[str]:
        """The topics of which no more fits."""
        most = self._limits
        return [topic for topic, lane in self._lanes.items() if len(lane) >= most.queue or lane.bytes >= most.bytes]

    @property
    def has_enough(self) -> bool:
        """Whether a flight is ready to be sent, or much is still to be deleted."""
        ready = sum(lane.queued for lane in self._lanes.values())
        return ready >= self._limits.batch or len(self._landed) >= self._limits.queue

    def known(self) -> list[int]:
        """Return the ids of all rows in memory, those included that are still to be deleted or parked."""
        ids = [entry.id for lane in self._lanes.values() for entry in lane.entries()]
        return [*ids, *self._landed, *self._unfit]

    def admit(self, entries: Iterable[Entry | Unfit]) -> None:
        """Take what was read, in order; of a held topic, and behind an unfit record of its key, nothing: it is read again later."""
        blocked = {_key(unfit.entry) for unfit in self._unfit.values()}
        held = set(self.held_topics)
        for entry in entries:
            if isinstance(entry, Unfit):
                self._unfit[entry.entry.id] = entry
                blocked.add(_key(entry.entry))
                continue
            record = entry.record
            if record.topic in held or (blocked and record.key is not None and _key(entry) in blocked):
                continue
            self._lane(record.topic).admit(entry)

    # Sending

    def take_off(self, now: float) -> list[Lane]:
        """Put records in flight wherever a lane has any that may go; return those lanes."""
        return [lane for lane in self._lanes.values() if not lane.flight and lane.take_off(self._limits.batch, now)]

    def land(self, lane: Lane, deliveries: Sequence[Delivery], now: float) -> Landing:
        """Take the answers to a lane's flight; the topic is held if that is what is wrong."""
        landing = lane.land(deliveries, now)
        self._landed.update((entry.id, entry) for entry in landing.acknowledged)
        self._unfit.update((unfit.entry.id, unfit) for unfit in landing.unfit)
        if landing.topic_error is not None:
            self._hold(lane.topic, now)
        return landing

    def next_due(self, now: float) -> float | None:
        """Return in how many seconds something is to be done without any news; None if nothing."""
        times = [due for lane in self._lanes.values() if (due := lane.due_at()) is not None]
        times += [hold.until for hold in self._holds.values() if hold.until]
        return max(0.0, min(times) - now) if times else None

    # What was written down

    @property
    def landed(self) -> list[Entry]:
        """What is acknowledged and to be deleted."""
        return list(self._landed.values())

    @property
    def landed_count(self) -> int:
        """How many those are."""
        return len(self._landed)

    @property
    def unfit(self) -> list[Unfit]:
        """What can never be sent and is to be parked."""
        return list(self._unfit.values())

    def forget(self, landed: Iterable[Entry], unfit: Iterable[Unfit]) -> None:
        """The table knows it now."""
        for entry in landed:
            self._landed.pop(entry.id, None)
        for refused in unfit:
            self._unfit.pop(refused.entry.id, None)

    # Holds and shards

    def end_holds(self, now: float) -> list[str]:
        """Return the topics that are to be tried again from now on; their rows were passed over and must be read again."""
        due = [topic for topic, hold in self._holds.items() if 0 < hold.until <= now]
        for topic in due:
            self._holds[topic].until = 0.0
        return due

    def flows(self, topic: str) -> bool:
        """Forget the topic's hold after a delivery; return False if there was none."""
        return self._holds.pop(topic, None) is not None

    def keep(self, shards: Collection[int]) -> None:
        """Forget what is queued of all other shards. What is in flight or answered stays known."""
        for lane in self._lanes.values():
            lane.keep(shards)

    def shards_in_use(self) -> set[int]:
        """Return the shards of which something is in flight or to be written down."""
        flying = {entry.shard for lane in self._lanes.values() for entry in lane.flight}
        return flying | {entry.shard for entry in self._landed.values()} | {unfit.entry.shard for unfit in self._unfit.values()}

    def _lane(self, topic: str) -> Lane:
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = Lane(topic, self._limits.retry)
        return lane

    def _hold(self, topic: str, now: float) -> None:
        failures = self._holds[topic].failures + 1 if topic in self._holds else 1
        self._holds[topic] = _Hold(failures, now + self._limits.hold.delay(failures))


def _key(entry: Entry) -> tuple[str, bytes | None]:
    return entry.record.topic, entry.record.key

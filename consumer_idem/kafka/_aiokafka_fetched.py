"""The leader epochs of what aiokafka has fetched: it does not hand them on, but they stand in the bytes that its client receives."""

from struct import Struct

from consumer_idem.kafka._held import Held
from consumer_idem.message import Partition

_LOG_OVERHEAD = 12
_MAGIC = 2
_BEGINNING = Struct(">qiib")


class Fetched(Held):
    """A held partition that knows the leader epochs of what was fetched since the last seek: where each begins."""

    __slots__ = ("_epochs",)

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self._epochs: list[tuple[int, int]] = []

    def seek(self, offset: int) -> None:
        """Start at `offset`, and end every wait for a change."""
        self._epochs.clear()
        super().seek(offset)

    def learn(self, data: bytes) -> None:
        """Look at the beginning of every record batch in `data`; what is older than format v2 has no epoch."""
        epochs, at = self._epochs, 0
        while at + _BEGINNING.size <= len(data):
            offset, length, epoch, magic = _BEGINNING.unpack_from(data, at)
            if magic != _MAGIC or length <= 0:
                return
            while epochs and epochs[-1][0] >= offset:
                epochs.pop()
            if not epochs or epochs[-1][1] != epoch:
                epochs.append((offset, epoch))
            at += _LOG_OVERHEAD + length

    def leader_epoch(self, offset: int) -> int | None:
        """Return the leader epoch of the record at `offset`, None where it is not known."""
        epoch = next((epoch for first, epoch in reversed(self._epochs) if first <= offset), -1)
        return epoch if epoch >= 0 else None

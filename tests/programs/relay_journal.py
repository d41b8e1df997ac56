"""What a relay process does, written down as it does it, so that a test can tell after a kill what it had in its hands."""

import json
import os
import time
from collections.abc import Sequence
from typing import Any

from consumer_idem.message import OutboxRecord
from consumer_idem.outbox.backlog import Backlog, Epochs
from consumer_idem.outbox.entry import Entry, Unfit
from consumer_idem.outbox.lease import Lease
from consumer_idem.ports import Delivery, NotDelivered, Publisher


class Journal:
    """One line for each thing done: the moment, on the clock that all processes of a machine share, what, and the records' values."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, records: Sequence[OutboxRecord] = (), *, at: float | None = None) -> None:
        """Write a line. What the kernel has of it, a kill of this process does not take back."""
        values = [(record.value or b"").decode() for record in records]
        os.write(self._file, json.dumps([at or time.monotonic(), what, values]).encode() + b"\n")

    def watch(self) -> None:
        """Note every deletion and every renewal of a lease in this process."""
        settle, beat = Backlog.settle, Lease.beat

        async def noted_settle(backlog: Backlog, landed: Sequence[Entry], unfit: Sequence[Unfit], epochs: Epochs) -> int:
            deleted = await settle(backlog, landed, unfit, epochs)
            if deleted == len(landed):
                self.note("deleted", [entry.record for entry in landed])
            return deleted

        async def noted_beat(lease: Lease, *, ping: bool) -> None:
            asked_at = time.monotonic()
            await beat(lease, ping=ping)
            self.note("renewed", at=asked_at)

        Backlog.settle, Lease.beat = noted_settle, noted_beat  # type: ignore[method-assign]  # this process is the test's


class Noting:
    """A publisher that notes what it is handed, and what it gives back undelivered."""

    def __init__(self, inner: Publisher, journal: Journal) -> None:
        self._inner = inner
        self._journal = journal

    async def publish(self, records: Sequence[OutboxRecord]) -> Sequence[Delivery]:
        """Publish, with a line before and, if anything failed, a line after."""
        self._journal.note("sent", records)
        deliveries = await self._inner.publish(records)
        failed = [record for record, delivery in zip(records, deliveries, strict=True) if isinstance(delivery, NotDelivered)]
        if failed:
            self._journal.note("failed", failed)
        return deliveries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

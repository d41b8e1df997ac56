"""Our membership in the group, through aiokafka's coordinator: the only module that reaches into it.

Its public commit() retries for ever, and after the group has dropped us it commits as if we had never been a member, which a
broker accepts while the group is empty: an old offset would stand. Here a commit is sent once, and only by a member.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from aiokafka import AIOKafkaConsumer, OffsetAndMetadata, TopicPartition
from aiokafka.errors import CommitFailedError

_NO_GENERATION = -1


class Heartbeat(Enum):
    """What the group answered to one heartbeat."""

    MEMBER = "member"
    REBALANCING = "rebalancing"
    DROPPED = "dropped"
    UNANSWERED = "unanswered"


class Membership:
    """The consumer's standing in its group. Valid once the consumer has started."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    def dropped(self) -> bool:
        """Whether the group has told us that we are no member any more, or were never one."""
        return bool(self._coordinator.generation == _NO_GENERATION)

    async def ready(self) -> None:
        """Wait until the group's coordinator is known."""
        await self._coordinator.ensure_coordinator_known()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Send one commit, as the member we are at this moment; raise aiokafka's error if it is not taken."""
        if self.dropped():
            raise CommitFailedError("the group has dropped this member")
        assignment = self._consumer._subscription.subscription.assignment
        wanted = {partition: OffsetAndMetadata(offset, "") for partition, offset in offsets.items()}
        await self._coordinator._do_commit_offsets(assignment, wanted)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset that is wanted next of a partition; None if it is not ours or stands nowhere."""
        assignment = self._consumer._subscription.subscription.assignment
        state = assignment.state_value(partition) if assignment is not None else None
        return state.position if state is not None and state.has_valid_position else None

    async def heartbeat(self) -> Heartbeat:
        """Ask the group now whether it counts us in."""
        await self.ready()
        if self.dropped():
            return Heartbeat.DROPPED
        answered = await self._coordinator._do_heartbeat()
        if self.dropped():
            return Heartbeat.DROPPED
        if not answered:
            return Heartbeat.UNANSWERED
        return Heartbeat.REBALANCING if self._coordinator._rejoin_needed_fut.done() else Heartbeat.MEMBER

    @property
    def _coordinator(self) -> Any:
        return self._consumer._coordinator

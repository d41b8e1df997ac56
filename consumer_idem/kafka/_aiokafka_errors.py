"""aiokafka's errors as ours: one table, applied at the edge."""

from collections.abc import Mapping

from aiokafka import errors as theirs

from consumer_idem.errors import ConsumerIdemError, KafkaRefused, KafkaUnavailable, OffsetOutOfRange, PartitionLost, TopicUnknown

_OURS: Mapping[type[Exception], type[ConsumerIdemError]] = {
    theirs.OffsetOutOfRangeError: OffsetOutOfRange,
    theirs.IllegalStateError: PartitionLost,
    theirs.ConsumerStoppedError: PartitionLost,
    theirs.UnknownTopicOrPartitionError: TopicUnknown,
    theirs.InvalidTopicError: TopicUnknown,
    theirs.TopicAuthorizationFailedError: KafkaRefused,
    theirs.GroupAuthorizationFailedError: KafkaRefused,
    theirs.ClusterAuthorizationFailedError: KafkaRefused,
    theirs.AuthenticationFailedError: KafkaRefused,
    theirs.SaslAuthenticationFailed: KafkaRefused,
    theirs.UnsupportedSaslMechanismError: KafkaRefused,
}


def ours(error: Exception) -> ConsumerIdemError:
    """Return our error for one of aiokafka's; what the table does not know is KafkaUnavailable, since waiting loses nothing."""
    kind = next((kind for foreign, kind in _OURS.items() if isinstance(error, foreign)), KafkaUnavailable)
    return kind(f"{kind()} Kafka's client says: {error!r}")

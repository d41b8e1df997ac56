"""aiokafka's errors as ours: two tables, applied at the edge."""

from collections.abc import Mapping

from aiokafka import errors as theirs

from consumer_idem.errors import ConsumerIdemError, KafkaRefused, KafkaUnavailable, OffsetOutOfRange, PartitionLost, TopicUnknown
from consumer_idem.kafka._line import TooLarge
from consumer_idem.ports import FailureKind, NotDelivered

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


class InvalidRecordError(theirs.BrokerResponseError):  # type: ignore[misc]  # aiokafka has no types
    """The broker refuses a record, for example one without a key in a compacted topic. aiokafka does not know this code."""

    errno = 87
    message = "INVALID_RECORD"


theirs.kafka_errors.setdefault(InvalidRecordError.errno, InvalidRecordError)

_KINDS: Mapping[type[Exception], FailureKind] = {
    InvalidRecordError: FailureKind.RECORD,
    theirs.InvalidTimestampError: FailureKind.RECORD,
    theirs.PolicyViolationError: FailureKind.RECORD,
    theirs.UnknownTopicOrPartitionError: FailureKind.TOPIC,
    theirs.InvalidTopicError: FailureKind.TOPIC,
    theirs.TopicAuthorizationFailedError: FailureKind.TOPIC,
    theirs.ClusterAuthorizationFailedError: FailureKind.TOPIC,
    theirs.InvalidRequiredAcksError: FailureKind.TOPIC,
    theirs.UnsupportedForMessageFormatError: FailureKind.TOPIC,
}


def failure(error: Exception) -> NotDelivered:
    """Return what a failed delivery is about; what no table knows waits and is sent again."""
    if isinstance(error, theirs.MessageSizeTooLargeError | theirs.RecordListTooLargeError):
        return TooLarge(FailureKind.RECORD, repr(error))
    kind = next((kind for foreign, kind in _KINDS.items() if isinstance(error, foreign)), FailureKind.RETRIABLE)
    return NotDelivered(kind, repr(error))


def ours(error: Exception) -> ConsumerIdemError:
    """Return our error for one of aiokafka's; what the table does not know is KafkaUnavailable, since waiting loses nothing."""
    kind = next((kind for foreign, kind in _OURS.items() if isinstance(error, foreign)), KafkaUnavailable)
    return kind(f"{kind()} Kafka's client says: {error!r}")

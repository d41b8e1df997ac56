"""librdkafka's errors as ours: two tables, applied at the edge."""

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from consumer_idem.errors import (
    ConsumerIdemError,
    KafkaRefused,
    KafkaUnavailable,
    OffsetCommitFailed,
    OffsetOutOfRange,
    PartitionLost,
    TopicUnknown,
)
from consumer_idem.kafka._line import TooLarge
from consumer_idem.ports import FailureKind, NotDelivered

_OURS: Mapping[int, type[ConsumerIdemError]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicUnknown,
    KafkaError._UNKNOWN_TOPIC: TopicUnknown,
    KafkaError._UNKNOWN_PARTITION: TopicUnknown,
    KafkaError.TOPIC_EXCEPTION: TopicUnknown,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: KafkaRefused,
    KafkaError.GROUP_AUTHORIZATION_FAILED: KafkaRefused,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: KafkaRefused,
    KafkaError.SASL_AUTHENTICATION_FAILED: KafkaRefused,
    KafkaError._AUTHENTICATION: KafkaRefused,
    KafkaError.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    KafkaError._AUTO_OFFSET_RESET: OffsetOutOfRange,
    KafkaError.ILLEGAL_GENERATION: OffsetCommitFailed,
    KafkaError.UNKNOWN_MEMBER_ID: OffsetCommitFailed,
    KafkaError.REBALANCE_IN_PROGRESS: OffsetCommitFailed,
    KafkaError.STALE_MEMBER_EPOCH: OffsetCommitFailed,
    KafkaError.FENCED_INSTANCE_ID: OffsetCommitFailed,
    KafkaError._ASSIGNMENT_LOST: PartitionLost,
}

_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_RECORD = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError._INVALID_ARG,
        KafkaError.INVALID_MSG_SIZE,
    }
)


def ours(error: KafkaException | KafkaError) -> ConsumerIdemError:
    """Return our error for one of librdkafka's; what the table does not know is KafkaUnavailable, since waiting loses nothing."""
    fault: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    kind = _OURS.get(fault.code(), KafkaUnavailable)
    return kind(f"{kind()} Kafka's client says: {fault}")


def failure(error: KafkaError) -> NotDelivered:
    """Return what a failed delivery is about; what no table knows waits and is sent again."""
    code, text = error.code(), str(error)
    if code in _TOO_LARGE:
        return TooLarge(FailureKind.RECORD, text)
    if code in _RECORD:
        return NotDelivered(FailureKind.RECORD, text)
    return NotDelivered(FailureKind.TOPIC if code in _TOPIC else FailureKind.RETRIABLE, text)

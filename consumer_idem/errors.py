"""Every error of the library. A class's docstring is its default message: what happened and what to do."""

import inspect
from datetime import timedelta

from consumer_idem.message import Mark, Partition


class ConsumerIdemError(Exception):
    """Something went wrong in consumer_idem."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0])


class DeclarationError(ConsumerIdemError):
    """A source or handler is declared wrongly. Correct the declaration that the message names."""


class SettingRefused(ConsumerIdemError):
    """A setting cannot be used. Correct the flag, the argument of App, the environment variable or `.env`."""


class SchemaMissing(ConsumerIdemError):
    """The tables of consumer_idem do not exist in this database. Run `consumer-idem schema install`."""


class SchemaOutdated(ConsumerIdemError):
    """The tables were made by another version of consumer_idem. Run `consumer-idem schema install` with this one."""


class ScopeRefused(ConsumerIdemError):
    """The scope is not known here or belongs to another group. The message says how to proceed."""


class TopicUnknown(ConsumerIdemError):
    """A handler's topic does not exist in Kafka. Create it, or correct the name in `@app.handler`."""


class UnsafeClientSetting(ConsumerIdemError):
    """A Kafka client setting would lose or double messages. Remove it: consumer_idem sets it itself."""


class ClientMissing(ConsumerIdemError):
    """The Kafka client library is not installed. Install consumer-idem with the extra `aiokafka` or `confluent`."""


class TransactionEnded(ConsumerIdemError):
    """This Tx has ended with its handler call. Do the work inside the handler, or in `tx.after_commit`."""


class TransactionControlRefused(ConsumerIdemError):
    """A handler cannot begin, commit or roll back: the library does. Use `tx.savepoint()`, or raise to undo."""


class TransactionLost(ConsumerIdemError):
    """The transaction was ended behind the library's back; nothing of it counts. Look for a raw COMMIT or ROLLBACK."""


class DatabaseFailure(ConsumerIdemError):
    """A statement of the library failed in the database. `sqlstate` is PostgreSQL's code, None without an answer."""

    def __init__(self, message: str | None = None, *, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class CommitUnknown(ConsumerIdemError):
    """COMMIT was sent and no clear answer came. The library finds out by running the messages again."""


class Fenced(ConsumerIdemError):
    """Another worker took this partition over; nothing of this transaction counts. No action is needed."""


class DatabaseRewound(ConsumerIdemError):
    """The database is at an older state than this worker saw. The worker seeks back and applies again what is missing."""


class PartitionLost(ConsumerIdemError):
    """The group gave this partition to another member. No action is needed."""


class OffsetOutOfRange(ConsumerIdemError):
    """The wanted offset is not in the topic any more, or not yet. The worker looks for its start position again."""


class OrderBroken(ConsumerIdemError):
    """The Kafka client delivered a message twice or out of order. The worker seeks to its watermark and reads again."""


class LogCut(ConsumerIdemError):
    """Kafka has lost messages that were settled, and holds others in their place. The worker reads from `offset`, where they begin.

    `mark` is the last message before them, None if there is none.
    """

    def __init__(self, offset: int, mark: Mark | None) -> None:
        super().__init__()
        self.offset = offset
        self.mark = mark


class OffsetCommitFailed(ConsumerIdemError):
    """Kafka did not take the offsets. No action is needed: claims make the redelivery harmless."""


class KafkaUnavailable(ConsumerIdemError):
    """Kafka could not be reached. Check `--kafka` and the brokers; the worker tries again by itself."""


class QuarantineFailed(ConsumerIdemError):
    """A message could not even be quarantined, so its partition waits. This is a fault of consumer_idem: please report it."""


class KafkaRefused(ConsumerIdemError):
    """Kafka does not let this client do that. Check its credentials and the ACLs of the topic and the group."""


class CodecMissing(ConsumerIdemError):
    """aiokafka lacks the library that decompresses this topic. Run `pip install 'consumer-idem[aiokafka]'`; nothing was skipped."""


class Unreadable(ConsumerIdemError):
    """What lies in Kafka from `offset` up to `next_offset` cannot be read. Keep `raw` as evidence and seek to `next_offset`."""

    def __init__(self, partition: Partition, offset: int, next_offset: int, *, error: str, raw: bytes = b"") -> None:
        super().__init__(f"{partition.topic}/{partition.number} cannot be read from {offset} up to {next_offset}: {error}")
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.error = error
        self.raw = raw


class RetryLater(ConsumerIdemError):
    """Raised by a handler: not now, try again after a while. The partition waits, so that its order holds."""

    def __init__(self, after: timedelta = timedelta(seconds=1)) -> None:
        if not isinstance(after, timedelta):
            raise TypeError(f"RetryLater takes a timedelta, not {type(after).__name__}: raise RetryLater(timedelta(seconds=30)).")
        super().__init__(f"Handler asked for a retry after {after}.")
        self.after = after


class RecordRefused(ConsumerIdemError):
    """This record cannot be published. Correct what the message names before it is given to the outbox."""


class RecordTooLarge(RecordRefused):
    """The record is larger than its topic takes. Send less, or raise the topic's `max.message.bytes`."""


class OutsideTransaction(ConsumerIdemError):
    """The connection is not in a transaction, so that record and effect could part. Begin one and add the record inside it."""

"""Exactly-once effects for Kafka consumers: claim, effect and outbox in one PostgreSQL transaction."""

from consumer_idem.app import App
from consumer_idem.consumer.case import Item
from consumer_idem.consumer.handler import RetryPolicy
from consumer_idem.errors import ConsumerIdemError, RetryLater
from consumer_idem.inbox.fingerprint import Fingerprint
from consumer_idem.inbox.locate import field, fields, header
from consumer_idem.inbox.source import Source
from consumer_idem.message import Message, Partition, Position
from consumer_idem.outbox.record import PendingRecord
from consumer_idem.outbox.table import Outbox
from consumer_idem.outcome import Applied, Outcome, Quarantined, Reason, Rejected, Retry, Skipped
from consumer_idem.transaction.tx import Tx, after_commit

__all__ = [
    "App",
    "Applied",
    "ConsumerIdemError",
    "Fingerprint",
    "Item",
    "Message",
    "Outbox",
    "Outcome",
    "Partition",
    "PendingRecord",
    "Position",
    "Quarantined",
    "Reason",
    "Rejected",
    "Retry",
    "RetryLater",
    "RetryPolicy",
    "Skipped",
    "Source",
    "Tx",
    "after_commit",
    "field",
    "fields",
    "header",
]

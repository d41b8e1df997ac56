"""What is written about a message: its claim, its quarantine entry, its repetition. Pure."""

import json
from collections.abc import Sequence

from consumer_idem.consumer.case import Case
from consumer_idem.inbox.table import Claims, Repeat
from consumer_idem.inbox.verdict import Duplicate, Unverified
from consumer_idem.outcome import Quarantined, Reason
from consumer_idem.quarantine.table import Entry
from consumer_idem.stored import stored_headers, stored_text


def claims_of(cases: Sequence[Case]) -> Claims:
    """Return the inbox rows that claim the messages' keys."""
    messages = [case.message for case in cases]
    readings = [case.reading for case in cases]
    routes = [case.route for case in cases]
    return Claims(
        key_hash=[reading.key_hash for reading in readings],
        scope=[route.scope for route in routes],
        source=[route.source for route in routes],
        topic=[case.topic for case in cases],
        partition=[message.partition for message in messages],
        offset=[message.offset for message in messages],
        message_time=[None if message.time is None else message.time.timestamp() for message in messages],
        message_id=[reading.message_id for reading in readings],
        tenant=[reading.tenant for reading in readings],
        fingerprint=[reading.fingerprint for reading in readings],
        fingerprint_version=[reading.fingerprint_version for reading in readings],
        field_digests=[reading.field_digests for reading in readings],
        kept=[None if reading.kept is None else json.dumps(reading.kept) for reading in readings],
    )


def repeat_of(case: Case) -> Repeat | None:
    """Return the row for a duplicate; None for anything else, and for the same delivery once more."""
    held, message = case.held, case.message
    if held is None or not isinstance(case.verdict, Duplicate | Unverified):
        return None
    if held.position == (case.topic, message.partition, message.offset):
        return None
    return Repeat(case.reading.key_hash, case.topic, message.partition, message.offset)


def entry_of(case: Case, group: str) -> Entry | None:
    """Return the quarantine entry of a message that is quarantined, or skipped without proof; None for any other."""
    outcome = case.outcome
    if isinstance(case.verdict, Unverified):
        error = f"The copy that holds the key was made under fingerprint version {case.verdict.version}, which the source does not know."
        return _entry(case, group, "closed", Quarantined(Reason.UNVERIFIED, error))
    return _entry(case, group, "open", outcome) if isinstance(outcome, Quarantined) else None


def _entry(case: Case, group: str, state: str, outcome: Quarantined) -> Entry:
    message = case.message
    reading = case.reading if case.identified else None
    known = reading or case.unreadable
    return Entry(
        state=state,
        reason=outcome.reason.value,
        error=stored_text(outcome.error),
        fields=json.dumps(outcome.fields),
        consumer_group=group,
        scope=case.route.scope if case.routed else None,
        source=case.route.source if case.routed else None,
        key_hash=None if known is None else known.key_hash,
        tenant=None if known is None else known.tenant,
        message_id=None if known is None else known.message_id,
        fingerprint=None if reading is None else reading.fingerprint,
        fingerprint_version=None if reading is None else reading.fingerprint_version,
        kept=None if reading is None or reading.kept is None else json.dumps(reading.kept),
        topic=case.topic,
        partition=message.partition,
        offset=message.offset,
        message_time=message.time,
        key=message.key,
        value=message.value,
        headers=stored_headers(message.headers),
        attempts=case.failures,
        release_after=outcome.release_after,
    )

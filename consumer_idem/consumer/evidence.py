"""What is written about a message: its claim, its quarantine entry, its repetition. Pure."""

import json
from collections.abc import Sequence

from consumer_idem.consumer.case import Case
from consumer_idem.inbox.table import Claims, Content, Copies
from consumer_idem.inbox.verdict import Duplicate, Unverified
from consumer_idem.outcome import Quarantined, Reason
from consumer_idem.quarantine.table import Entry
from consumer_idem.stored import stored_headers, stored_text


def content_of(cases: Sequence[Case]) -> Content:
    """Return what is compared with the copies that hold the messages' keys."""
    messages = [case.message for case in cases]
    readings = [case.reading for case in cases]
    routes = [case.route for case in cases]
    return Content(
        key_hash=[reading.key_hash for reading in readings],
        scope=[route.scope for route in routes],
        source=[route.source for route in routes],
        topic=[case.topic for case in cases],
        partition=[message.partition for message in messages],
        offset=[message.offset for message in messages],
        message_id=[reading.message_id for reading in readings],
        tenant=[reading.tenant for reading in readings],
        fingerprint=[reading.fingerprint for reading in readings],
        fingerprint_version=[reading.fingerprint_version for reading in readings],
    )


def claims_of(cases: Sequence[Case]) -> Claims:
    """Return the inbox rows that claim the messages' keys."""
    times = [case.message.time for case in cases]
    readings = [case.reading for case in cases]
    return Claims(
        content_of(cases),
        message_time=[None if time is None else time.timestamp() for time in times],
        field_digests=[reading.field_digests for reading in readings],
        kept=[None if reading.kept is None else json.dumps(reading.kept) for reading in readings],
    )


def copies_of(cases: Sequence[Case]) -> Copies:
    """Return the rows for those among the messages that are duplicates and another delivery than the copy that holds the key."""
    copies = [case for case in cases if case.copy and isinstance(case.verdict, (Duplicate, Unverified))]
    return Copies(
        key_hash=[case.reading.key_hash for case in copies],
        topic=[case.topic for case in copies],
        partition=[case.message.partition for case in copies],
        offset=[case.message.offset for case in copies],
    )


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

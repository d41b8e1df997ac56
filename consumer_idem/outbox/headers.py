"""The headers of a published record: CloudEvents in binary mode, then what the user gave. Pure."""

from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID

from consumer_idem.message import Header

_VERSION: Header = ("ce_specversion", b"1.0")


def cloud_event(message_id: UUID, source: str, type: str | None, time: datetime) -> list[Header]:
    """Return the `ce_` headers; a record without a type has no `ce_type`."""
    when = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return [("ce_id", str(message_id).encode()), *_unchanging(source, type), ("ce_time", when.encode())]


@lru_cache(1024)
def _unchanging(source: str, type: str | None) -> tuple[Header, ...]:
    head: tuple[Header, ...] = (_VERSION, ("ce_source", source.encode()))
    return head if type is None else (*head, ("ce_type", type.encode()))

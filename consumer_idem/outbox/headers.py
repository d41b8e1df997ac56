"""The headers of a published record: CloudEvents in binary mode, then what the user gave. Pure."""

from functools import lru_cache
from uuid import UUID

from consumer_idem.message import Header

_VERSION: Header = ("ce_specversion", b"1.0")


def cloud_event(message_id: UUID, source: str, type: str | None, time: str) -> list[Header]:
    """Return the `ce_` headers; a record without a type has no `ce_type`. `time` is in the form of RFC 3339."""
    return [("ce_id", str(message_id).encode()), *_unchanging(source, type), ("ce_time", time.encode())]


@lru_cache(1024)
def _unchanging(source: str, type: str | None) -> tuple[Header, ...]:
    head: tuple[Header, ...] = (_VERSION, ("ce_source", source.encode()))
    return head if type is None else (*head, ("ce_type", type.encode()))

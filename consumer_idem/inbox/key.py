"""The idempotency key: scope, source, tenant and message id, hashed into 16 bytes. Pure.

    tag 0:  00  15 bytes of SHA-256
    tag 1:  01  4 bytes: minutes since 1970 (UTC) of the time inside the id  11 bytes of SHA-256

What is hashed is one string of length-prefixed parts, so that no two keys share it. The hash may be cut because the
readable source, tenant and id are stored beside it and compared: a collision ends in quarantine, never as a duplicate.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from enum import Enum
from hashlib import sha256
from typing import Any
from uuid import UUID

from consumer_idem.inbox.reading import Unidentifiable
from consumer_idem.uuids import from_bytes

MessageId = str | int | UUID | Enum | date | bytes
"""What can be a message id, or one part of it."""

_DOMAIN = b"consumer_idem key 1\n"
_READABLE = 200
_UNPRINTABLE = "\x00-\x1f\x7f\ud800-\udfff"
_UNSAFE = re.compile(f"[{_UNPRINTABLE}]")
_AMBIGUOUS = re.compile(rf"[{_UNPRINTABLE}\\|]")
_is_ambiguous = _AMBIGUOUS.search
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def id_text(value: object) -> str:
    """Return the text of one part of a message id; raise Unidentifiable if it is missing, empty or of no stable text.

    An id is its text: 17 and "17" are one id, so that a model may change its type without making every message new.
    """
    text = value if type(value) is str else _text(value)
    if not text or text.isspace():
        raise Unidentifiable("is empty")
    return text


def _text(value: object) -> str:
    if value is None:
        raise Unidentifiable("is null")
    text = None if isinstance(value, bool) else next((of for kind, of in _TEXTS if isinstance(value, kind)), None)
    if text is None:
        raise Unidentifiable(f"is a {type(value).__name__}, which cannot be an id")
    return text(value)


def _digits(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:
        raise Unidentifiable("has too many digits") from None


def _instant(value: datetime) -> str:
    if value.utcoffset() is None:
        raise Unidentifiable("is a time without a zone")
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError:
        raise Unidentifiable("is a time outside the calendar") from None


def utf8(value: bytes) -> str:
    """Decode `value`; raise Unidentifiable if it is not UTF-8."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise Unidentifiable("is not UTF-8") from None


# The first that fits: an enum may be a str as well, and every datetime is a date.
_TEXTS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Enum, lambda value: id_text(value.value)),
    (str, str.__str__),
    (int, _digits),
    (UUID, UUID.__str__),
    (datetime, _instant),
    (date, date.isoformat),
    (bytes, utf8),
)


def printable(text: str) -> str:
    """Return `text` with escapes for control characters and lone surrogates, which PostgreSQL or a terminal may not take."""
    return _UNSAFE.sub(_escaped, text)


def _one_to_one(text: str) -> str:
    return _AMBIGUOUS.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character in "\\|":
        return "\\" + character
    return f"\\x{ord(character):02x}" if character < "\x80" else f"\\u{ord(character):04x}"


def readable(parts: Sequence[str]) -> str:
    """Return an id as people see it: its parts with `|` between, one to one; a long one is its beginning and a hash."""
    if len(parts) == 1 and len(parts[0]) <= _READABLE and not _is_ambiguous(parts[0]):
        return parts[0]
    text = "|".join(map(_one_to_one, parts))
    if len(text) <= _READABLE:
        return text
    digest = sha256(b"".join(map(prefixed, parts))).hexdigest()
    # No escaped text contains \#, so that this is never the text of a short id.
    return text[: _READABLE - 80].rstrip("\\") + "\\#" + digest


def prefixed(text: str) -> bytes:
    """Return `text` in UTF-8 behind its length: what follows in a row of these can never be read as a part of it."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "surrogatepass")
    return b"%d:%b" % (len(raw), raw)


class Keys:
    """Makes the key hashes of one source in one scope."""

    __slots__ = ("_beginning", "_without_tenant")

    def __init__(self, scope: str, source: str) -> None:
        self._beginning = _DOMAIN + prefixed(scope) + prefixed(source)
        self._without_tenant = self._beginning + b"0;"

    def hash(self, message_id: Sequence[str], tenant: Sequence[str] = (), occurred_at: datetime | None = None) -> UUID:
        """Return the key hash; with the bucket of `occurred_at` in front, if the source has a time in its id."""
        hashed = self._beginning + b"%d;" % len(tenant) + b"".join(map(prefixed, tenant)) if tenant else self._without_tenant
        for part in message_id:
            hashed += prefixed(part)
        digest = sha256(hashed).digest()
        if occurred_at is None:
            return from_bytes(digest[:15])
        return from_bytes(b"\x01" + bucket(occurred_at).to_bytes(4, "big") + digest[:11])


def bucket(moment: datetime) -> int:
    """Return the minutes from 1970 to `moment`, 0 for what was before; four bytes hold them to the calendar's end.

    Minutes, because neighbours in time then share the index pages that are in memory, and a day is a whole number of them.
    """
    return max(0, (moment - _EPOCH) // _MINUTE)


_MINUTE = datetime(1970, 1, 1, 0, 1, tzinfo=UTC) - _EPOCH

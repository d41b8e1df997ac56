"""The idempotency keys that a message id may mean which a person has typed or copied from a log. Pure."""

import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

from consumer_idem.errors import ConsumerIdemError
from consumer_idem.inbox.identity import find_time
from consumer_idem.inbox.key import Keys
from consumer_idem.inbox.locate import FieldPart, Locator
from consumer_idem.inbox.reading import Unidentifiable
from consumer_idem.inbox.source import Source

_PIECE = re.compile(r"\\(?:([\\|])|x([0-9a-f]{2})|u([0-9a-f]{4}))|(\|)|([^\\|]+|\\)")


class IdNotUnderstood(ConsumerIdemError):
    """This cannot be an id of that source. Give it as the message has it, each part for itself if it has several."""


def key_hashes(source: Source[Any], scope: str, message_id: Sequence[str], tenant: str | None) -> list[UUID]:
    """Return the key hashes to look for: of the id as it stands, and of what it means where it is a text of ours (`17|3`).

    Raises IdNotUnderstood where the source says that the id holds a time and this one does not.
    """
    keys = Keys(scope, source.name)
    tenants = [()] if tenant is None else _readings([tenant])
    hashes: dict[UUID, None] = {}
    problem = ""
    for parts in _readings(message_id):
        try:
            time = _time(source, parts)
        except (Unidentifiable, ValueError, TypeError, IndexError) as error:
            problem = str(error)
            continue
        hashes.update((keys.hash(parts, tenant_parts, time), None) for tenant_parts in tenants)
    if not hashes:
        raise IdNotUnderstood(f"{'|'.join(message_id)!r} cannot be an id of source {source.name!r}: {problem}.")
    return list(hashes)


def parts_of(text: str) -> tuple[str, ...]:
    """Return the parts of an id from its readable form, see `key.readable`."""
    if "\\#" in text:
        raise IdNotUnderstood(f"{text!r} is the short form of a long id, which its parts cannot be told from. Give the id itself.")
    parts = [""]
    for sign, byte, unit, bar, plain in _PIECE.findall(text):
        if bar:
            parts.append("")
        else:
            parts[-1] += sign or plain or chr(int(byte or unit, 16))
    return tuple(parts)


def _readings(given: Sequence[str]) -> list[tuple[str, ...]]:
    if len(given) > 1:
        return [tuple(given)]
    return list(dict.fromkeys([(given[0],), parts_of(given[0])]))


def _time(source: Source[Any], parts: tuple[str, ...]) -> datetime | None:
    place = source.occurred_at
    if place is None:
        return None
    find = find_time(place, source.message_id, source.model)
    if not isinstance(place, Locator):
        return find(None, parts)
    assert isinstance(source.message_id, Locator)
    part = place.parts[0]
    assert isinstance(part, FieldPart)
    payload: Any = _moment(parts[source.message_id.parts.index(part)])
    for name in reversed(part.path.split(".")):
        payload = {name: payload}
    return find(payload, parts)


def _moment(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)

"""How headers and texts from outside are written so that PostgreSQL takes every one of them. Pure."""

import base64
import json
from collections.abc import Sequence

from consumer_idem.message import Header


def stored_headers(headers: Sequence[Header]) -> str | None:
    """Return headers as JSON `[[name, value], …]`; a value that is not UTF-8 becomes `{"base64": …}`; None if there are none."""
    if not headers:
        return None
    return json.dumps([[name, _stored_value(value)] for name, value in headers])


def loaded_headers(text: str | None) -> tuple[Header, ...]:
    """Return the headers that `stored_headers` wrote."""
    return tuple((name, _loaded_value(value)) for name, value in json.loads(text)) if text else ()


def stored_text(text: str, longest: int = 4000) -> str:
    """Return `text` without what PostgreSQL refuses (NUL, lone surrogates: written as escapes), cut at `longest` characters."""
    escaped = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    return escaped if len(escaped) <= longest else escaped[: longest - 1] + "…"


def _stored_value(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _loaded_value(value: str | dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()

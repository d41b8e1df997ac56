"""How an id is looked for in what could not be read: as a text that stands there, not as a part of a longer word. Pure."""

import json
import re
from collections.abc import Sequence

_NOT_WORD = re.compile(r"(\W)", re.ASCII)


def patterns_of(message_id: Sequence[str]) -> list[str] | None:
    """Return PostgreSQL's regular expressions that the bytes of a message must match, one for each part of its id.

    The bytes are written as PostgreSQL's `encode(…, 'escape')` does. None if a part is empty, and so is found everywhere.
    """
    return [_pattern(part) for part in message_id] if message_id and all(part.strip() for part in message_id) else None


def _pattern(part: str) -> str:
    """A part may stand there as it is, or as JSON writes it."""
    spelled = dict.fromkeys((part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1]))
    before = r"(?<![[:alnum:]])" if part[0].isalnum() else ""
    after = r"(?![[:alnum:]])" if part[-1].isalnum() else ""
    literal = "|".join(_NOT_WORD.sub(r"\\\1", _escaped(text)) for text in spelled)
    return f"{before}(?:{literal}){after}"


def _escaped(text: str) -> str:
    return "".join(_SIGNS[byte] for byte in text.encode("utf-8", "backslashreplace"))


_SIGNS = ["\\000", *map(chr, range(1, 128)), *(f"\\{byte:03o}" for byte in range(128, 256))]
_SIGNS[ord("\\")] = "\\\\"

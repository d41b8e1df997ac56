"""Keeps a handler from ending the library's transaction with raw SQL. Pure.

A guard for accidents, not for malice: what gets past it meets the deferred trigger and the seal.
"""

import re
from functools import lru_cache

from consumer_idem.errors import TransactionControlRefused

_NOT_CODE = re.compile(
    r"""--[^\n]*                             # comment to the end of the line
      | /\*.*?\*/                            # block comment
      | (?<![A-Za-z0-9_])[eE]'(?:[^'\\]|\\.|'')*'   # string with escapes
      | '(?:[^']|'')*'                       # string
      | "(?:[^"]|"")*"                       # quoted identifier
      | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$       # dollar-quoted body
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTROL = re.compile(
    r"""(?:^|;)\s*(?:
        (?P<word>BEGIN|COMMIT|END|ABORT|START\s+TRANSACTION|PREPARE\s+TRANSACTION)\b
      | (?P<rollback>ROLLBACK)\b(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b)
    )""",
    re.VERBOSE | re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def _control_word(sql: str) -> str | None:
    match = _CONTROL.search(_NOT_CODE.sub(" ", sql))
    return (match["word"] or match["rollback"]).upper() if match else None


def refuse_control(sql: str) -> None:
    """Raise TransactionControlRefused if `sql` contains a statement that begins or ends a transaction."""
    word = _control_word(sql)
    if word is not None:
        raise TransactionControlRefused(
            f"A handler cannot send {word}: the library begins and commits. Return to commit, raise to undo, "
            "or use `async with tx.savepoint()` to undo a part."
        )

"""How log records are printed: the constant message, then its fields. No password passes, wherever it came from."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRETS = (
    # The user's part ends at the last @, since a password may hold one that is not escaped.
    (re.compile(r"(\w+://[^\s:/@]*):[^\s'\"]*@"), r"\1:***@"),
    (re.compile(r"(password[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;}]+", re.IGNORECASE), r"\1***"),
)
_TALKATIVE = ("aiokafka", "asyncio", "kafka")
_NEEDS_QUOTES = re.compile(r"[\s\"=]|^$")


def set_up(level: str, *, as_json: bool) -> None:
    """Log to standard error from `level` on; client libraries from warnings on, unless `level` is debug."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else FieldsFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else max(logging.WARNING, logging.getLogger().level))


def masked(text: str) -> str:
    """Return `text` with *** for passwords in connection strings and settings."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what was given as `extra`, masked before any quoting that a pattern would not see through."""
    return {name: _plain(value) for name, value in vars(record).items() if name not in _USUAL}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return value if isinstance(value, int | float | bool) or value is None else masked(str(value))


class FieldsFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO  consumer_idem.consumer.lane lane starts partition=payments/3 offset=17`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback below it if there is one."""
        fields = "".join(f" {name}={_quoted(value)}" for name, value in fields_of(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.name} {record.getMessage()}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return masked(line)


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, the fields, and `exception` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        entry = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name, "message": masked(record.getMessage())}
        entry |= fields_of(record)
        if record.exc_info:
            entry["exception"] = masked(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if _NEEDS_QUOTES.search(text) else text

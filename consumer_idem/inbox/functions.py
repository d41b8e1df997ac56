"""The functions that a user gives a source: how they are refused, and how they are called. Pure."""

import inspect
from collections.abc import Callable
from typing import Any

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.reading import CannotRead


def refuse_coroutine(function: object, option: str) -> None:
    """Raise DeclarationError if `function` cannot be called, or has to be awaited."""
    if not callable(function):
        raise DeclarationError(f"{option}={function!r} is neither header(), field() nor fields(), nor a function.")
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - not a test for callable
        raise DeclarationError(f"{option} is a coroutine function. Reading a message does no I/O: make it a plain function.")


def called(function: Callable[..., Any], option: str, error: type[CannotRead], *args: Any) -> Any:
    """Call a user's function; raise `error` if it raises. Its message is left out, since it may quote the payload."""
    try:
        return function(*args)
    except (CannotRead, MemoryError):
        raise
    except Exception as problem:
        raise error(f"the {option} function raised {type(problem).__name__}") from None

"""From the bytes of a JSON message to the validated model, without losing anything on the way. Pure.

JSON parsers keep the last of two equal names and hold a number with a fraction as a 64-bit float; both can make two
different amounts equal, and a conflict would pass for a duplicate. So a repeated name is refused, and a number that a
float cannot hold is read as a Decimal. Most messages have neither, and that costs one count of their quotation marks.
"""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from math import inf
from typing import Any, Generic, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from pydantic_core.core_schema import ErrorType

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.reading import Undecodable

P = TypeVar("P")

_DIGITS = 15
"""So many digits a float always holds: of longer numbers, two may be one float."""
_SMALLEST = 2.3e-308
"""Nearer to zero a float holds fewer."""
_SHAPE = bytes({**dict.fromkeys(b"0123456789.", 48), **dict.fromkeys(b":,[- \t\r\n", 58)}.get(byte, byte) for byte in range(256))
_LONG_NUMBER = b":" + b"0" * 16
_KNOWN_ERRORS = frozenset(get_args(ErrorType))
_QUOTING = frozenset({"error", "tag", "encoding_error", "attribute"})
"""Keys in an error's context whose text may quote the input or is the user's own."""
_SHOWN, _LONGEST = 5, 1000


class Decoder(Generic[P]):
    """Validates what messages carry against one model."""

    __slots__ = ("_validate_json", "_validate_python")

    def __init__(self, model: type[P]) -> None:
        try:
            # The model's config may put off building its validator: this builds it now, or shows that it cannot be built.
            validator = TypeAdapter(model).validator
            self._validate_json: Callable[[bytes], P] = validator.validate_json
            self._validate_python: Callable[[Any], P] = validator.validate_python
        except Exception as error:
            raise DeclarationError(f"model {model!r} cannot be used by pydantic: {error}") from error

    def json(self, value: bytes) -> P:
        """Return the model that the JSON text `value` describes; raise Undecodable if there is none, or more than one."""
        try:
            parsed = from_json(value, allow_inf_nan=False, cache_strings="keys")
        except ValueError as error:
            raise Undecodable(f"Invalid JSON: {error}") from None
        floats: list[float] = []
        quotes = 2 * _count_strings(parsed, floats)
        if (value.count(b'"') != quotes and _may_repeat(value, quotes)) or (floats and _may_be_inexact(value, floats)):
            exactly = _Exact()
            exact = exactly.parse(value)
            if exactly.inexact:
                return self._exact(exact)
        try:
            return self._validate_json(value)
        except ValidationError as error:
            raise Undecodable(explain(error)) from None

    def python(self, value: Any) -> P:
        """Return the model that a user's function made, or made the input of; raise Undecodable if it does not validate."""
        try:
            return self._validate_python(value)
        except ValidationError as error:
            raise Undecodable(explain(error)) from None

    def _exact(self, exact: Any) -> P:
        # Decimals can only be validated as Python objects, where a strict model takes less than from JSON.
        try:
            return self._validate_python(exact)
        except ValidationError as error:
            raise Undecodable(f"{explain(error)} (with numbers of more than 15 digits: send them as strings)") from None


def _count_strings(parsed: Any, floats: list[float]) -> int:
    """Return how many names and strings are in `parsed`, and collect its floats."""
    kind, count, values = type(parsed), 0, parsed
    if kind is dict:
        count, values = len(parsed), parsed.values()
    elif kind is not list:
        values = (parsed,)
    for value in values:
        kind = type(value)
        if kind is str:
            count += 1
        elif kind is dict or kind is list:
            count += _count_strings(value, floats)
        elif kind is float:
            floats.append(value)
    return count


def _may_repeat(value: bytes, quotes: int) -> bool:
    """Tell whether `value` may have more names and strings than were found in it, for a name that is there twice."""
    # Where no backslash is escaped, each one before a quotation mark escapes it.
    return b"\\\\" in value or value.count(b'"') - value.count(b'\\"') != quotes


def _may_be_inexact(value: bytes, floats: Sequence[float]) -> bool:
    """Tell whether a number may have more than the 15 digits that a float always holds."""
    if _LONG_NUMBER in value.translate(_SHAPE):
        return True
    return any(not _SMALLEST < abs(number) < inf and (number or b"e-" in value or b"E-" in value) for number in floats)


class _Exact:
    """Parses JSON with every name checked, and with every number exact in its Python text.

    `inexact`: there is a number whose value another reader of the same JSON may see differently.
    """

    __slots__ = ("inexact",)

    def __init__(self) -> None:
        self.inexact = False

    def parse(self, value: bytes) -> Any:
        return json.loads(value.decode(), object_pairs_hook=_unique, parse_float=self._number)

    def _number(self, token: str) -> float | Decimal:
        number = float(token)
        if abs(number) == inf:
            raise Undecodable("Invalid JSON: a number is too large")
        try:
            exact = Decimal(token)
        except ArithmeticError:
            raise Undecodable("Invalid JSON: a number is too small") from None
        shortest = Decimal(repr(number))
        # Pydantic has its own text of a float with more digits, so that only Python's can be relied on.
        if shortest != exact or len(shortest.as_tuple().digits) > _DIGITS or 0 < abs(number) < _SMALLEST:
            self.inexact = True
        return number if shortest == exact else exact


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Undecodable("Invalid JSON: a name occurs twice in one object")
    return found


def explain(error: ValidationError) -> str:
    """Return what is wrong and under which names, without any value of the input."""
    problems = error.errors(include_input=False, include_url=False)
    shown = [_problem(problem) for problem in problems[:_SHOWN]]
    more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    return "; ".join(shown + more)[:_LONGEST]


def _problem(problem: Any) -> str:
    place = ".".join(str(step)[:64] for step in problem["loc"])
    safe = problem["type"] in _KNOWN_ERRORS and _QUOTING.isdisjoint(problem.get("ctx", ()))
    text = problem["msg"] if safe else problem["type"]
    return f"{place}: {text}" if place else text

"""Which client settings are ours. What could lose, double or reorder messages is fixed, and refused by name when it is given otherwise."""

from collections.abc import Mapping
from typing import Any

from consumer_idem.errors import UnsafeClientSetting

_SAME = {"true": "True", "false": "False", "-1": "all"}


def merged(options: Mapping[str, Any], *, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's settings: `defaults`, changed by `options`, and `fixed`, which no option may change."""
    for name, value in options.items():
        if name in fixed and _normal(value) != _normal(fixed[name]):
            raise UnsafeClientSetting(
                f"The Kafka client setting {name}={value!r} is refused: consumer_idem needs {fixed[name]!r}. Remove it."
            )
    return {**defaults, **options, **fixed}


def _normal(value: object) -> str:
    text = str(value)
    return _SAME.get(text, text)

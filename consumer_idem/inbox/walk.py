"""What is at a dotted path of a payload, or where the path ends early. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic_core

MISSING: object = getattr(pydantic_core, "MISSING", object())
"""Pydantic's value for a field that was not sent; older versions have none."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Where a path ends before its value: at the segment number `depth`, which is null or not there at all."""

    depth: int
    null: bool


def walk(payload: Any, path: tuple[str, ...]) -> Any:
    """Return what is at `path`, or the Gap where it ends early."""
    node = payload
    for depth, name in enumerate(path, 1):
        if node is None:
            return Gap(depth - 1, null=True)
        node = node.get(name, MISSING) if isinstance(node, Mapping) else getattr(node, name, MISSING)
        if node is MISSING:
            return Gap(depth, null=False)
    return node

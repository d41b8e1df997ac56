"""What a model's declared types tell about its fields: which there are, and where a dotted path leads. Pure."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Annotated, Any, NewType, NotRequired, Required, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.walk import MISSING

_ALIASES = tuple({typing_extensions.TypeAliasType, getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType)})
_PLAIN_FACTORIES = (list, dict, set, tuple, frozenset, str, int, bytes, Decimal)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One declared field of a model.

    `made_up`: it gets a default that is not null when it is absent. `opaque`: that default is made by a function, so that
    two deliveries of one message may get two values. `tracked`: the payload tells whether the field was there.
    """

    annotation: Any
    made_up: bool = False
    opaque: bool = False
    tracked: bool = False
    aliases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a path leads, and through which fields. `direct`: attributes alone lead to it on every payload."""

    annotation: Any
    steps: tuple[tuple[Declared, ...], ...]
    direct: bool

    @property
    def opaque(self) -> tuple[int, ...]:
        """The steps at which a function may make up what was absent."""
        return tuple(number for number, step in enumerate(self.steps) if any(declared.opaque for declared in step))


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the types that `annotation` allows, with aliases, metadata and None taken off."""
    if isinstance(annotation, NewType):
        return alternatives(annotation.__supertype__)
    if _is_alias(annotation):
        return alternatives(_aliased(annotation))
    if isinstance(annotation, TypeVar):
        bounds = annotation.__constraints__ or (annotation.__bound__ or Any,)
        return tuple(found for bound in bounds for found in alternatives(bound))
    origin = get_origin(annotation)
    if origin in (Annotated, Required, NotRequired):
        return alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(found for member in get_args(annotation) for found in alternatives(member))
    return () if annotation in (None, type(None), MISSING) else (annotation,)


def _is_alias(annotation: Any) -> bool:
    return isinstance(get_origin(annotation) or annotation, _ALIASES)


def _aliased(annotation: Any) -> Any:
    value, args = (get_origin(annotation) or annotation).__value__, get_args(annotation)
    return value[args] if args else value


def declared_fields(kind: Any) -> Mapping[str, Declared] | None:
    """Return the fields of a pydantic model, dataclass or TypedDict; None for any other type."""
    kind = get_origin(kind) or kind
    if not isinstance(kind, type):
        return None
    if issubclass(kind, BaseModel):
        return {name: _from_pydantic(info, tracked=True) for name, info in kind.model_fields.items()}
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(kind)
    if is_typeddict(kind) or typing_extensions.is_typeddict(kind):
        hints = _hints(kind)
        return {name: Declared(annotation=hint) for name, hint in hints.items()}
    return None


def _of_dataclass(kind: type) -> Mapping[str, Declared]:
    if hasattr(kind, "__pydantic_fields__"):
        return {name: _from_pydantic(info, tracked=False) for name, info in kind.__pydantic_fields__.items()}
    hints = _hints(kind)
    return {entry.name: _from_dataclass(entry, hints[entry.name]) for entry in dataclasses.fields(kind)}


def _hints(kind: type) -> Mapping[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise DeclarationError(f"{type_name(kind)} names a type that cannot be found: {error}. Declare it at module level.") from error


def _from_dataclass(entry: "dataclasses.Field[Any]", annotation: Any) -> Declared:
    factory = None if entry.default_factory is dataclasses.MISSING else entry.default_factory
    made_up = factory is not None or not (entry.default is None or entry.default is dataclasses.MISSING)
    return Declared(annotation=annotation, made_up=made_up, opaque=_opaque(factory))


def _from_pydantic(info: FieldInfo, *, tracked: bool) -> Declared:
    names = (info.alias, info.validation_alias if isinstance(info.validation_alias, str) else None)
    made_up = not info.is_required() and (info.default_factory is not None or not (info.default is None or info.default is MISSING))
    return Declared(
        annotation=info.annotation,
        made_up=made_up,
        opaque=_opaque(info.default_factory),
        tracked=tracked,
        aliases=tuple(filter(None, names)),
    )


def _opaque(factory: Any) -> bool:
    return factory is not None and factory not in _PLAIN_FACTORIES


def resolve(model: Any, path: str) -> Target:
    """Follow `path` through the declared types of `model`; raise DeclarationError where it leads nowhere."""
    annotation, direct, steps = model, True, list[tuple[Declared, ...]]()
    for name in path.split("."):
        kinds = alternatives(annotation)
        if not kinds:
            raise DeclarationError(f"{path!r} leads into a field that is always null.")
        direct = direct and not _nullable(annotation) and all(map(_has_attributes, kinds))
        steps.append(tuple(_step(kind, name, path) for kind in kinds))
        annotation = Union[tuple(declared.annotation for declared in steps[-1])]  # noqa: UP007 - made of a tuple at run time
    return Target(annotation=annotation, steps=tuple(steps), direct=direct)


def _step(kind: Any, name: str, path: str) -> Declared:
    known = declared_fields(kind)
    if known is None and isinstance(origin := get_origin(kind) or kind, type) and issubclass(origin, Mapping):
        return Declared(annotation=(*get_args(kind), Any, Any)[1])
    if known is None:
        raise DeclarationError(f"{path!r}: {type_name(kind)} has no fields, so there is no {name!r} in it.")
    if name not in known:
        raise DeclarationError(f"{path!r}: {type_name(kind)} has no field {name!r}.{_hint(name, known)}")
    return known[name]


def _hint(name: str, known: Mapping[str, Declared]) -> str:
    aliased = [own for own, declared in known.items() if name in declared.aliases]
    similar = aliased or get_close_matches(name, known, n=1)
    return f" Did you mean {similar[0]!r}? Fields are named as in Python, not by their aliases." if similar else ""


def _nullable(annotation: Any) -> bool:
    if isinstance(annotation, NewType):
        return _nullable(annotation.__supertype__)
    if _is_alias(annotation):
        return _nullable(_aliased(annotation))
    origin = get_origin(annotation)
    if origin in (Annotated, Required, NotRequired):
        return _nullable(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return any(_nullable(member) for member in get_args(annotation))
    return annotation in (None, type(None))


def _has_attributes(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and (issubclass(origin, BaseModel) or dataclasses.is_dataclass(origin))


def type_name(kind: Any) -> str:
    """Return how an error should call `kind`."""
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")

"""The fingerprint: a versioned hash of the canonical form of the key business fields. Pure.

Same key and same fingerprint: a duplicate. Same key and another fingerprint: a conflict. A digest of four bytes per field
is stored beside the fingerprint, so that a conflict can name the fields that differ without their values. Digests decide
nothing: two values share one by chance once in four billion pairs, and then the conflict stands but names one field less.
"""

import hmac
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.locate import FieldPart, Locator, Part

if TYPE_CHECKING:
    from pydantic import SecretStr

DIGEST = 4
"""The bytes of one field's digest."""


class Print(NamedTuple):
    """What one version of a fingerprint makes of a message."""

    fingerprint: bytes
    field_digests: bytes
    """Four bytes for each field, in declared order."""
    names: tuple[str, ...]

    def differing(self, field_digests: bytes) -> tuple[str, ...]:
        """Return the names of the fields whose digests are not those in `field_digests`, which is another copy's."""
        return differing(self.names, self.field_digests, field_digests)


def differing(names: Sequence[str], one: bytes, other: bytes) -> tuple[str, ...]:
    """Return the names of the fields whose digests differ between two copies of one fingerprint version."""
    places = range(0, DIGEST * len(names), DIGEST)
    return tuple(name for name, at in zip(names, places, strict=True) if one[at : at + DIGEST] != other[at : at + DIGEST])


class Fingerprint:
    """Declares which fields and headers make two messages with one key the same, or a conflict.

    `Fingerprint("account", "customer.id", header("api-version"))`. Another choice of fields is another `version`; list the
    old one in `previous=` for as long as rows made under it should still be compared. `pepper` makes HMACs of all hashes,
    for personal data that could be guessed. `keep` stores the values of these fields in clear, `allow_floats` takes
    floats where they are given by the same text each time; without it a float is refused when the source is declared.
    """

    __slots__ = ("_pepper", "allow_floats", "keep", "parts", "previous", "version")

    def __init__(
        self,
        *fields: str | Locator,
        version: int = 1,
        previous: Sequence["Fingerprint"] = (),
        pepper: "SecretStr | str | bytes | None" = None,
        keep: Collection[str] = (),
        allow_floats: Collection[str] = (),
    ) -> None:
        self.parts = tuple(map(_part, fields))
        self.version = version
        self.previous = tuple(previous)
        self.keep = _names(keep, "keep")
        self.allow_floats = _names(allow_floats, "allow_floats")
        self._pepper = _secret(pepper)
        self._check()

    def __repr__(self) -> str:
        return f"Fingerprint({', '.join(map(repr, self.names))}, version={self.version})"

    @property
    def names(self) -> tuple[str, ...]:
        """The fields in declared order, as conflicts name them; a header is `header(its-name)`."""
        return tuple(map(str, self.parts))

    @property
    def pepper(self) -> bytes | None:
        """The secret as bytes."""
        return self._pepper

    @property
    def trace(self) -> str:
        """What the registered content says of the pepper: enough to notice another one, nothing to guess it from."""
        return "" if self._pepper is None else f" pepper {hmac.digest(self._pepper, b'consumer_idem pepper', 'sha256')[:DIGEST].hex()}"

    def _check(self) -> None:
        if not self.parts:
            raise DeclarationError("A Fingerprint needs at least one field.")
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise DeclarationError(f"Fingerprint names {repeated[0]!r} twice.")
        if type(self.version) is not int or not 1 <= self.version <= 32767:
            raise DeclarationError(f"Fingerprint version {self.version!r} is not a number from 1 to 32767.")
        for option in ("keep", "allow_floats"):
            unknown = [name for name in getattr(self, option) if name not in self.names]
            if unknown:
                raise DeclarationError(f"{option}= names {unknown[0]!r}, which is not a field of the fingerprint.")
        self._check_previous()

    def _check_previous(self) -> None:
        versions = [self.version]
        for older in self.previous:
            if older.previous:
                raise DeclarationError(f"previous= lists version {older.version}, which has a previous= itself. Put all into one list.")
            if older.version in versions:
                raise DeclarationError(f"Fingerprint version {older.version} is there twice. Each version is one choice of fields.")
            versions.append(older.version)


def _part(place: str | Locator) -> Part:
    if isinstance(place, Locator):
        if len(place.parts) != 1:
            raise DeclarationError("A Fingerprint lists its fields one by one, not through fields().")
        return place.parts[0]
    if "" in str(place).split("."):
        raise DeclarationError(f"Fingerprint field {place!r} is not a dotted path. Name a field, or use header().")
    return FieldPart(str(place))


def _names(names: Collection[str], option: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise DeclarationError(f"{option}={names!r} is one string. Write a tuple: {option}=({names!r},).")
    return tuple(names)


def _secret(pepper: "SecretStr | str | bytes | None") -> bytes | None:
    if pepper is None:
        return None
    value = pepper if isinstance(pepper, str | bytes) else pepper.get_secret_value()
    secret = value.encode() if isinstance(value, str) else value
    if not secret:
        raise DeclarationError("pepper= is empty, which protects nothing. Give it a secret, or leave it out.")
    return secret

"""A source: a declared upstream, and how its messages become readings. No I/O here."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from dataclasses import field as slot
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from consumer_idem.errors import DeclarationError
from consumer_idem.inbox.fingerprint import Fingerprint, Print
from consumer_idem.inbox.functions import called, refuse_coroutine
from consumer_idem.inbox.key import Keys, printable, readable
from consumer_idem.inbox.locate import Place, field, fields, header, header_text, needs_payload
from consumer_idem.inbox.reading import CannotRead, Reading, TombstoneRefused, Undecodable, Unidentifiable, Unreadable
from consumer_idem.message import Message
from consumer_idem.outcome import Reason

if TYPE_CHECKING:
    from consumer_idem.inbox.binding import Bound

__all__ = ["Fingerprint", "Reader", "Reading", "Source", "Unreadable", "event_type", "field", "fields", "header"]

P = TypeVar("P")


def event_type(message: Message) -> str | None:
    """Return the CloudEvents type of `message`; None if it has none, or several, or one that is empty or not UTF-8."""
    try:
        return header_text(message, "ce_type")
    except Unidentifiable:
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Source(Generic[P]):
    """A declared upstream: its name, its model, where its message id is, and which fields are fingerprinted.

    `model` is a pydantic model, a dataclass or a TypedDict; messages are JSON unless `decode` makes something of them
    that the model takes (`decode(message)`). `message_id` is a header, a field, several fields, or a function of
    (payload, message) that returns an id or a tuple of its parts. `tenant` is found likewise; keys of two tenants
    never meet.

    `occurred_at` is for ids that contain their time (a field of `fields()`, or a function of the id's parts as text):
    it speeds up large inboxes. It belongs to the key, so it cannot be added or changed later in the same scope.

    A message with a null value is quarantined as a tombstone, unless `on_tombstone(message)` makes a payload of it. That
    is then read like any other: its message id must be another than that of the message it deletes.
    """

    name: str
    _: KW_ONLY
    model: type[P]
    message_id: Place | None = None
    fingerprint: Fingerprint | None = None
    tenant: Place | None = None
    occurred_at: Place | None = None
    on_tombstone: Callable[[Message], Any] | None = None
    decode: Callable[[Message], Any] | None = None
    _bound: "Bound[P]" = slot(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip() or printable(self.name) != self.name:
            raise DeclarationError(f"Source name {self.name!r} is not a readable text.")
        try:
            self._bind()
        except DeclarationError as problem:
            raise DeclarationError(f"Source {self.name!r}: {problem}") from problem.__cause__

    def _bind(self) -> None:
        if self.message_id is None:
            raise DeclarationError("it has no message_id. Say where the id is: header(…), field(…), fields(…) or a function.")
        if self.fingerprint is None:
            raise DeclarationError("it has no fingerprint. List the fields that make a repeat a conflict: Fingerprint(…).")
        for option in ("on_tombstone", "decode"):
            if getattr(self, option) is not None:
                refuse_coroutine(getattr(self, option), option)
        # Here and nowhere else: pydantic takes longer to load than all the rest, and only whoever declares a source needs it.
        from consumer_idem.inbox.binding import bind

        object.__setattr__(self, "_bound", bind(self.model, self.message_id, self.tenant, self.occurred_at, self.fingerprint))

    @property
    def fingerprint_version(self) -> int:
        """The version under which new messages are fingerprinted."""
        return next(iter(self._bound.prints))

    @property
    def key_scheme(self) -> int:
        """How its keys are made: 0 by hash alone, 1 with the time inside the id in front. One scope keeps to one scheme."""
        return 0 if self.occurred_at is None else 1

    @property
    def contents(self) -> Mapping[int, str]:
        """What each fingerprint version covers, in words: to be registered, so that it never changes under its number."""
        return {version: bound.content for version, bound in self._bound.prints.items()}

    def reader(self, scope: str) -> "Reader[P]":
        """Return what reads this source's messages for one scope. Make it once and keep it."""
        return Reader(self, scope)

    def read(self, message: Message, scope: str) -> Reading[P] | Unreadable:
        """Read one message for `scope`; with many, keep a `reader`."""
        return Reader(self, scope)(message)

    def fingerprint_under(self, version: int, payload: P, message: Message) -> Print | None:
        """Return the fingerprint that `version` gives; None if this source does not know the version or cannot take it."""
        bound = self._bound.prints.get(version)
        try:
            return None if bound is None else Print(*bound.take(payload, message), bound.names)
        except Undecodable:
            return None


class Reader(Generic[P]):
    """Reads the messages of one source for one scope. Never raises for what a message contains."""

    __slots__ = ("_find_id", "_find_tenant", "_find_time", "_in_headers", "_json", "_keys", "_name", "_print", "_python", "_source")

    def __init__(self, source: Source[P], scope: str) -> None:
        self._source = source
        self._name = source.name
        bound = source._bound
        self._json = bound.decoder.json if source.decode is None else None
        self._python = bound.decoder.python
        self._find_id = bound.find_id
        self._find_tenant = bound.find_tenant
        self._find_time = bound.find_time
        self._in_headers = not needs_payload(source.message_id) and not needs_payload(source.tenant)
        self._print = bound.prints[source.fingerprint_version]
        self._keys = Keys(scope, source.name)

    def __call__(self, message: Message) -> Reading[P] | Unreadable:
        """Return what `message` is to this source."""
        payload, value, bound = None, message.value, self._print
        try:
            payload = self._json(value) if self._json and value is not None else self._made(message)
            parts = self._find_id(payload, message)
            tenant = self._find_tenant(payload, message) if self._find_tenant else ()
            occurred_at = self._find_time(payload, parts) if self._find_time else None
            key_hash = self._keys.hash(parts, tenant, occurred_at)
            fingerprint, digests = bound.take(payload, message)
            kept = bound.kept(payload, message) if bound.keeps else None
        except CannotRead as problem:
            return self._unreadable(payload, message, problem.reason, str(problem))
        except MemoryError:
            raise
        except Exception as error:
            # A validator of the model's, say: whatever this message makes fail, it must not stop the partition.
            return self._unreadable(payload, message, Reason.UNDECODABLE, f"reading it raised {type(error).__name__}")
        return Reading(
            payload, self._name, readable(parts), readable(tenant) if tenant else None,
            key_hash, occurred_at, fingerprint, bound.version, digests, kept,
        )  # fmt: skip

    def _made(self, message: Message) -> P:
        """Return the payload that a function of the user's makes."""
        source = self._source
        if message.value is not None:
            assert source.decode is not None
            return self._python(called(source.decode, "decode", Undecodable, message))
        if source.on_tombstone is None:
            raise TombstoneRefused("The value is null, and the source has no on_tombstone.")
        return self._python(called(source.on_tombstone, "on_tombstone", Undecodable, message))

    def _unreadable(self, payload: P | None, message: Message, reason: Reason, error: str) -> Unreadable:
        unreadable = Unreadable(reason, printable(error), self._name)
        if payload is None and not self._in_headers:
            return unreadable
        try:
            parts = self._find_id(payload, message)
            tenant = self._find_tenant(payload, message) if self._find_tenant else ()
            occurred_at = self._find_time(payload, parts) if self._find_time else None
        except Exception:
            return unreadable
        key_hash = self._keys.hash(parts, tenant, occurred_at)
        return unreadable._replace(message_id=readable(parts), tenant=readable(tenant) if tenant else None, key_hash=key_hash)

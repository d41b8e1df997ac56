"""What a deployment has declared, kept in the database, so that a rename or a changed fingerprint cannot pass unseen."""

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_idem.errors import DeclarationError, ScopeRefused
from consumer_idem.inbox.progress import Progress
from consumer_idem.ports import Connection, Row
from consumer_idem.sql import Queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One handler's declaration: its scope and topic, its source and the content of every fingerprint version it knows."""

    scope: str
    topic: str
    key_scheme: int
    source: str
    fingerprints: dict[int, str]


class Registry:
    """Every method works inside the caller's transaction."""

    def __init__(self, schema: str) -> None:
        self._sql = Queries("inbox", schema)
        self._progress = Progress(schema)

    async def lock(self, connection: Connection) -> None:
        """Let one process register at a time, until the transaction ends."""
        await connection.execute(self._sql["lock_registry"])

    async def registered(self, connection: Connection, scopes: Mapping[str, int], sources: Mapping[str, int]) -> bool:
        """Tell whether all these names are still registered, each under its id."""
        args = (list(scopes), list(scopes.values()), list(sources), list(sources.values()))
        return bool((await connection.fetch(self._sql["registered"], *args))[0]["registered"])

    async def register(self, connection: Connection, group: str, registration: Registration, *, new_scope: bool) -> tuple[int, int]:
        """Return the ids of scope and source; raise ScopeRefused or DeclarationError for what contradicts the database."""
        scope = await self._scope(connection, group, registration, new_scope=new_scope)
        await connection.execute(self._sql["register_scope_topic"], scope, registration.topic)
        source = int((await connection.fetch(self._sql["register_source"], registration.source))[0]["id"])
        for version, content in registration.fingerprints.items():
            stored = (await connection.fetch(self._sql["register_fingerprint"], source, version, content))[0]["content"]
            if stored != content:
                raise DeclarationError(
                    f"Fingerprint version {version} of source {registration.source!r} was {stored} and is now {content}. "
                    f"Declare the new one with a higher version=, and the old one in previous=[…]."
                )
        return scope, source

    async def _scope(self, connection: Connection, group: str, registration: Registration, *, new_scope: bool) -> int:
        known = await self._read(connection, registration.scope)
        if known is None:
            if not new_scope and await self._progress.topic_known(connection, group, registration.topic):
                raise ScopeRefused(
                    f"Scope {registration.scope!r} is new, but group {group!r} has read topic {registration.topic!r} before: every "
                    'message that comes again would be applied again. If the handler was renamed, declare it with scope="its old name"; '
                    "if it is really new, start once with --new-scope."
                )
            await connection.execute(self._sql["register_scope"], registration.scope, group, registration.key_scheme)
            known = await self._read(connection, registration.scope)
            assert known is not None
        if known["consumer_group"] != group:
            raise ScopeRefused(
                f"Scope {registration.scope!r} belongs to group {known['consumer_group']!r}, this is group {group!r}: they would skip "
                "each other's messages. Name the handler differently, or use the same group."
            )
        if known["key_scheme"] != registration.key_scheme:
            how = "without" if registration.key_scheme else "with"
            raise DeclarationError(
                f"Scope {registration.scope!r} was registered {how} occurred_at=: its old keys would not be found. "
                "Keep the declaration, or use a new scope."
            )
        return int(known["id"])

    async def _read(self, connection: Connection, scope: str) -> Row | None:
        rows = await connection.fetch(self._sql["read_scope"], scope)
        return rows[0] if rows else None

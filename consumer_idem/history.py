"""What happened to a message: everything that the tables know about one idempotency key."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from consumer_idem.consumer.handler import Handler
from consumer_idem.errors import ConsumerIdemError
from consumer_idem.inbox.spelled import key_hashes, parts_of
from consumer_idem.inbox.table import Inbox
from consumer_idem.outbox.unpublished import Unpublished
from consumer_idem.ports import Connection, Database, Row
from consumer_idem.quarantine.table import Holding, Quarantine
from consumer_idem.quarantine.wording import patterns_of
from consumer_idem.transaction.short import short


class UnknownName(ConsumerIdemError):
    """The App has no source or handler of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What one handler's scope knows of a message. `settled` is the inbox row, None if it was never settled there.

    Rows are read by the names of find.sql and its like: topic, partition, offset, status, reason, …
    """

    handler: str
    settled: Row | None
    duplicates: Sequence[Row]
    quarantined: Sequence[Row]
    unpublished: Sequence[Row]

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is known."""
        return self.settled is None and not self.quarantined


def named(handlers: Sequence[Handler], name: str) -> list[Handler]:
    """Return the handler of that name, or all handlers of the source of that name; raise UnknownName if there is none."""
    found = [handler for handler in handlers if handler.name == name] or [handler for handler in handlers if handler.source.name == name]
    if not found:
        known = sorted({handler.name for handler in handlers} | {handler.source.name for handler in handlers})
        raise UnknownName(f"{name!r} is no source or handler of this App. It has {', '.join(known) or 'none'}.")
    return found


class Histories:
    """Looks messages up; changes nothing."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._schema = schema
        self._inbox = Inbox(schema)
        self._quarantine = Quarantine(schema)
        self._unpublished = Unpublished(schema)

    async def find(self, handler: Handler, message_id: Sequence[str], tenant: str | None = None) -> list[History]:
        """Return what `handler`'s scope knows of the message with this id, whose parts may be given apart or as one text.

        More than one history where the text can be read in two ways and both are known.
        """
        hashes = key_hashes(handler.source, handler.scope, message_id, tenant)
        async with short(self._database, self._schema) as connection:
            found = [await self._of_key(connection, handler, key_hash) for key_hash in hashes]
        return [history for history in found if not history.is_empty]

    async def guess(self, group: str, handlers: Sequence[Handler], message_id: Sequence[str]) -> Sequence[Row]:
        """Return entries in quarantine that have no id, and whose text holds this one: they may be about it, or not.

        At most 20, of the newest 1,000 without an id.
        """
        patterns = patterns_of(message_id if len(message_id) > 1 else parts_of(message_id[0]))
        if patterns is None:
            return ()
        where = Holding(group=group, topics=[each.topic for each in handlers], scopes=[each.scope for each in handlers])
        async with short(self._database, self._schema) as connection:
            return await self._quarantine.holding(connection, where, patterns)

    async def _of_key(self, connection: Connection, handler: Handler, key_hash: UUID) -> History:
        settled = await self._inbox.find(connection, key_hash)
        return History(
            handler=handler.name,
            settled=settled,
            duplicates=await self._inbox.repeats(connection, key_hash),
            quarantined=await self._quarantine.find(connection, key_hash),
            unpublished=() if settled is None else await self._unpublished.of_message(connection, key_hash, settled["generation"]),
        )

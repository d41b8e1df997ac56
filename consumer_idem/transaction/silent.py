"""Ends transactions that hold claims and whose client has fallen silent in the middle of a statement."""

import logging
from datetime import timedelta

from consumer_idem.errors import CommitUnknown, DatabaseFailure
from consumer_idem.ports import Database
from consumer_idem.sql import Queries
from consumer_idem.transaction.short import short

log = logging.getLogger(__name__)


async def end_silent(database: Database, schema: str, longer_than: timedelta) -> None:
    """End every such transaction that has waited `longer_than` for its client; never raises, since it is only a help."""
    try:
        async with short(database, schema) as connection:
            ended = await connection.fetch(Queries("transaction", schema)["end_silent"], longer_than)
    except (DatabaseFailure, CommitUnknown) as error:
        log.debug("silent transactions could not be looked for", extra={"error": str(error)})
        return
    if ended:
        log.warning("ended transactions whose worker is silent in the middle of a statement", extra={"transactions": len(ended)})

"""Which quarantine entries a command is about."""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from consumer_idem.quarantine.table import Matching


class State(StrEnum):
    """What can have become of an entry."""

    OPEN = "open"
    RELEASED = "released"
    DISCARDED = "discarded"
    CLOSED = "closed"
    ALL = "all"


Reason = Annotated[str | None, typer.Option(metavar="REASON", help="Only entries of this reason, e.g. conflict.", show_default=False)]
Handler = Annotated[str | None, typer.Option(metavar="NAME", help="Only entries of this handler (its scope).", show_default=False)]
Topic = Annotated[str | None, typer.Option(metavar="NAME", help="Only entries from this topic.", show_default=False)]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only entries made since this ISO time.", show_default=False)]
MessageId = Annotated[str | None, typer.Option(metavar="ID", help="Only entries of this message id, as it is shown.", show_default=False)]


def matching(
    reason: str | None, handler: str | None, topic: str | None, since: str | None, message_id: str | None, state: str | None = "open"
) -> "Matching":
    """Return what the flags mean; `state` None: every state."""
    from consumer_idem.outcome import Reason as Known
    from consumer_idem.quarantine.table import Matching

    if reason is not None and reason not in set(Known):
        raise typer.BadParameter(f"{reason!r} is none of {', '.join(sorted(Known))}.")
    return Matching(state=state, reason=reason, handler=handler, topic=topic, since=_time(since), message_id=message_id)


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an ISO time.", param_hint="--since") from None
    if time.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone. Add one, e.g. {text}Z.", param_hint="--since")
    return time

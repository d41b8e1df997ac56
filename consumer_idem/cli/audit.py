"""Who decides, and what is said about it: the flags and texts that go into an audit trail."""

from typing import Annotated

import typer

Yes = Annotated[bool, typer.Option("--yes", help="With --all: do it, instead of showing what would be done.")]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who does it, for the audit trail. [default: you]", show_default=False)]


def operator(by: str | None) -> str:
    """Return who does it: who the flag names, else the user of this process."""
    import getpass
    import os

    try:
        return said(by or getpass.getuser())
    except (OSError, KeyError):
        # A container may run under a user that has no name.
        return f"uid {os.getuid()}"


def said(text: str) -> str:
    """Return the text as PostgreSQL takes it."""
    from consumer_idem.stored import stored_text

    return stored_text(text)

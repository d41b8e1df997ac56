"""The commands, put together; and how errors end the process."""

import gc
import sys
import traceback
from typing import Annotated

import typer

from consumer_idem.cli.demo import demo
from consumer_idem.cli.logs import masked
from consumer_idem.cli.outbox import outbox
from consumer_idem.cli.quarantine import quarantine
from consumer_idem.cli.relay import relay
from consumer_idem.cli.run import run
from consumer_idem.cli.schema import schema
from consumer_idem.cli.show import show
from consumer_idem.errors import ConsumerIdemError

_INTERRUPTED = 130

commands = typer.Typer(
    name="consumer-idem",
    help="Exactly-once effects for Kafka consumers: claim, effect and outbox in one PostgreSQL transaction.",
    epilog="Settings come from flags, then from App(…), then from the environment (CONSUMER_IDEM_…), then from .env.",
    no_args_is_help=True,
    add_completion=False,
    # Tracebacks are printed below, without passwords.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"consumer-idem {version('consumer-idem')}")
        raise typer.Exit


@commands.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None: ...


commands.command()(run)
commands.command()(relay)
commands.add_typer(schema, name="schema")
commands.command()(show)
commands.add_typer(quarantine, name="quarantine")
commands.add_typer(outbox, name="outbox")
commands.command()(demo)


def main() -> None:
    """Run the command line of this process."""
    # What was imported so far stays to the end. The imports that a command adds would have it walked through again and again.
    gc.freeze()
    try:
        commands()
    except ConsumerIdemError as error:
        typer.secho(f"Error: {masked(str(error))}", err=True, fg=typer.colors.RED)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except Exception as error:
        typer.echo(masked("".join(traceback.format_exception(error))), err=True)
        sys.exit(1)

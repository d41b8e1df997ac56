"""`consumer-idem demo`: see it work on a machine with nothing but Python."""

from typing import Annotated

import typer

from consumer_idem.cli.options import AsJson


def demo(
    messages: Annotated[int, typer.Option(min=100, metavar="N", help="How many payment requests are sent.")] = 5000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same messages.")] = 1,
    database: Annotated[
        str | None, typer.Option(metavar="DSN", help="Use this PostgreSQL instead of one of the demo's own.", show_default=False)
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Use this Kafka instead of a small broker of the demo's own.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything there afterwards, to look around.")] = False,
    as_json: AsJson = False,
    app: Annotated[str, typer.Option(hidden=True)] = "consumer_idem.demo.payments:app",
) -> None:
    """Send payments with duplicates, conflicts and garbage, kill a worker half-way, and count the effects.

    The count trusts no number of the library's: it compares what was sent with the shop's tables, the quarantine and the
    output topic. Exit status 1 if anything is lost, doubled or wrong.
    """
    import asyncio

    from consumer_idem.cli.logs import set_up
    from consumer_idem.errors import ClientMissing

    try:
        from consumer_idem.demo.play import play
        from consumer_idem.demo.stage import Options
    except ImportError as error:
        raise ClientMissing(f"The demo needs {error.name}. Run `pip install 'consumer-idem[demo]'`.") from error
    set_up("warning", as_json=False)
    options = Options(messages=messages, seed=seed, app=app, keep=keep)
    if not asyncio.run(play(options, database=database, kafka=kafka, as_json=as_json)):
        raise typer.Exit(1)

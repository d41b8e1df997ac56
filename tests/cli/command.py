"""Running `consumer-idem` as a user does: a process of its own, without the settings of this one."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    status: int | None
    out: str
    err: str


def clean_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONSUMER_IDEM_")}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1", **(env or {})}


async def command(
    *arguments: str, cwd: Path | str = ROOT, env: Mapping[str, str] | None = None, program: str = "consumer_idem.cli"
) -> Result:
    """Run it to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        program,
        *arguments,
        cwd=cwd,
        env=clean_environment(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 110)
    return Result(process.returncode, out.decode(), err.decode())


async def inside(*arguments: str) -> Result:
    """Run it in this process, in a thread with an event loop of its own: much faster than a process."""
    from typer.testing import CliRunner

    from consumer_idem.cli.main import commands

    result = await asyncio.to_thread(CliRunner().invoke, commands, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Result(result.exit_code, result.stdout, result.stderr)

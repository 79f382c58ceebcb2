"""How commands talk: lines on stderr, results on stdout, faults in one sentence, Ctrl-C without a traceback."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run_command", "say", "wide_console"]

T = TypeVar("T")
PLAIN_WIDTH = 140
INTERRUPTED = 130  # what shells give for SIGINT


def say(line: str) -> None:
    """One line for the person at the terminal; stdout stays for results."""
    click.echo(line, err=True)


def wide_console() -> Console:
    """Stdout for tables: as wide as the terminal, and wide enough for a sentence where there is none."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def run_command(work: Coroutine[Any, Any, T], interrupted: str) -> T:
    """Runs it to its end. SIGINT and SIGTERM cancel it, at any await; then `interrupted` is said. The exit
    code is 130 after SIGINT, and 0 after SIGTERM: a supervisor asked for an orderly end and got it (scenario
    P02). Expected faults become one sentence and exit code 1."""
    from stateroom.channel import AddressError
    from stateroom.errors import StateroomError
    from stateroom.telemetry import TraceFileError
    from stateroom_ops.local_group import LocalGroupError
    from stateroom_ops.run_dir import RunDirError

    heard: list[signal.Signals] = []
    try:
        return asyncio.run(_cancelled_by_signals(work, heard))
    except asyncio.CancelledError:
        say(interrupted)
        raise SystemExit(0 if heard[:1] == [signal.SIGTERM] else INTERRUPTED) from None
    except StateroomError as error:
        raise click.ClickException(error.message) from None
    except (LocalGroupError, RunDirError, AddressError, TraceFileError) as error:
        raise click.ClickException(str(error)) from None


async def _cancelled_by_signals(work: Coroutine[Any, Any, T], heard: list[signal.Signals]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)

    def stop(number: signal.Signals) -> None:
        heard.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)

"""The command behind python -m scheduler_svc: flags in, exit code out."""

from __future__ import annotations

import sys
from typing import Any

import click

from scheduler_svc.flags import options, settings_from
from scheduler_svc.process import serve
from scheduler_svc.term_file import TermFileError
from stateroom.telemetry import TraceFileError

__all__ = ["main"]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@options
def main(**flags: Any) -> None:
    """Leads one group of cache services: agrees on the cap, admits under it, says why others wait."""
    settings = settings_from(flags)
    try:
        sys.exit(serve(settings))
    except (TermFileError, TraceFileError) as error:
        raise click.ClickException(str(error)) from None

"""The command behind python -m cache_svc: flags in, exit code out."""

from __future__ import annotations

import sys
from typing import Any

import click

from cache_svc.flags import options, settings_from
from cache_svc.process import serve
from cache_svc.term_store import TermStoreError
from stateroom.channel import AddressError
from stateroom.telemetry import TraceFileError

__all__ = ["main"]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@options
def main(**flags: Any) -> None:
    """Owns one rank's pool of recurrent states, answers how many sequences it affords, keeps its ledger."""
    settings = settings_from(flags)
    try:
        sys.exit(serve(settings))
    except (AddressError, TermStoreError, TraceFileError) as error:
        raise click.ClickException(str(error)) from None

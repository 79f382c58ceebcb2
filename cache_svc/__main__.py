"""python -m cache_svc: the cache service of one rank as a process."""

from __future__ import annotations

import sys
from typing import Any

import click

from cache_svc.flags import options, settings_from
from cache_svc.process import serve
from cache_svc.term_store import TermStoreError
from stateroom.telemetry import TraceFileError


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@options
def main(**flags: Any) -> None:
    """Owns one rank's pool of recurrent states, answers how many sequences it affords, keeps its ledger."""
    settings = settings_from(flags)
    try:
        sys.exit(serve(settings))
    except (TermStoreError, TraceFileError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()

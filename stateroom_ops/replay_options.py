"""Flags of a replay beside those of the group, and the requests they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stateroom_ops.traces import TraceError, TraceRequest, read_trace
from stateroom_ops.workload import Workload, generate

__all__ = ["requests_of", "speed_of", "workload_options"]

_OPTIONS = [
    click.option("--limit", type=click.IntRange(1), help="First N requests of the trace, or N generated ones."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of the generated workload."),
    click.option("--rate", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Arrivals so many times as dense as recorded."),
]  # fmt: skip


def workload_options(run: Callable[..., Any]) -> Callable[..., Any]:
    """--limit --seed --rate."""
    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def speed_of(context: click.Context, parameter: click.Parameter, text: str) -> float | None:
    """None for `max`, else a positive number."""
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise click.BadParameter(f"{text!r} is neither `max` nor a number above 0: write it as 10 or max")
    return speed


def requests_of(
    trace: Path | None, limit: int | None, seed: int, default_count: int | None = None
) -> list[TraceRequest]:
    """Of the file, or generated; ClickException with one sentence for a file that cannot be read."""
    if trace is None:
        workload = Workload(seed=seed)
        count = limit or default_count or workload.requests_count
        return generate(replace(workload, requests_count=count))
    try:
        return read_trace(trace, limit or default_count)
    except TraceError as error:
        raise click.ClickException(str(error)) from None

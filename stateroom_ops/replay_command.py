"""`stateroom replay`: a request trace through a group of real processes, checked at every step."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stateroom_ops.group_options import GROUP_FLAGS, group_options, settings_from
from stateroom_ops.replay_options import requests_of, speed_of, workload_options
from stateroom_ops.terminal import run_command, say

__all__ = ["replay"]


@click.command(
    help="Replay TRACE (Azure CSV, Mooncake JSONL, or arrival_s,input_tokens,output_tokens) through the Step "
    "stream; a seeded workload without TRACE. Starts a group of its own with the flags of `up`, or joins one."
)
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option("--connect", default="", metavar="ADDR", help="Join a running group's scheduler instead.")
@click.option(
    "--speed",
    default="max",
    show_default=True,
    callback=speed_of,
    metavar="X|max",
    help="Times the recorded speed in real time; max: virtual time, no sleeping, the same run every time.",
)
@click.option(
    "--step-ms",
    type=click.FloatRange(0, min_open=True),
    default=50.0,
    show_default=True,
    help="Time of one step: of the virtual clock, or a real pause.",
)
@workload_options
@group_options
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object on stdout.")
def replay(
    trace: Path | None,
    connect: str,
    speed: float | None,
    step_ms: float,
    limit: int | None,
    seed: int,
    rate: float,
    as_json: bool,
    **flags: Any,
) -> None:
    """The command; exit code 1 if the run counted errors."""
    requests = requests_of(trace, limit, seed)
    settings = None
    if connect:
        _refuse_group_flags(click.get_current_context())
    else:
        assert set(flags) == set(GROUP_FLAGS), f"flags {sorted(flags)} are not those of a group"
        settings = settings_from(f"replay-{os.getpid()}", **flags)
    from stateroom_ops.replay_run import ReplayPlan

    plan = ReplayPlan(requests, speed, step_ms, rate, settings, connect)
    summary = run_command(_run(plan), "replay stopped")
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        from stateroom_ops.summary_view import print_summary

        print_summary(summary)
    if summary["errors"]:
        sys.exit(1)


def _refuse_group_flags(context: click.Context) -> None:
    for flag in GROUP_FLAGS:
        if context.get_parameter_source(flag) is click.core.ParameterSource.COMMANDLINE:
            name = flag.replace("_", "-")
            raise click.UsageError(
                f"--{name} describes a new group and --connect joins one: give one of the two"
            )


async def _run(plan: Any) -> dict[str, object]:
    from stateroom_ops.progress import Progress
    from stateroom_ops.replay_run import replay_session

    with Progress(len(plan.requests)) as progress:
        async with replay_session(plan, _over(progress), progress.stepped) as running:
            tally = await running.run()
            return await running.summary(tally)


def _over(progress: Any) -> Callable[[str], None]:
    """Lines above the bar where there is one."""
    return progress.say if sys.stderr.isatty() else say

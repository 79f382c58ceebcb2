"""`stateroom demo`: a group of 4 real ranks under more load than it holds, and what that looks like.

Two stages of unequal depth, so that one stage's ranks limit the cap; steps of 10 ms in real time, so that
every number on the screen is of one clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stateroom_ops.replay_options import requests_of
from stateroom_ops.terminal import run_command, say
from stateroom_ops.traces import TraceRequest

__all__ = ["demo"]

REQUESTS = 400
STEP_MS = 10.0
ARRIVALS_SECONDS = 8.0  # the whole trace arrives in so long; the group needs longer to work it off
LOOK_EVERY_SECONDS = 0.25
LINE_EVERY_SECONDS = 2.0
QUOTA_BYTES = 40 * 2**20
PP_LAYERS = (36, 28)


@click.command(help="Four ranks (pp 2 x tp 2) of a small twin of Qwen3.5-27B under more load than they hold.")
@click.option("--trace", type=click.Path(path_type=Path), help="Replay this file instead of the workload.")
@click.option("--limit", type=click.IntRange(1), help=f"Requests; default {REQUESTS}.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object on stdout.")
def demo(trace: Path | None, limit: int | None, as_json: bool) -> None:
    """The command; exit code 1 if the run counted errors."""
    requests = requests_of(trace, limit, seed=0, default_count=REQUESTS)
    say(
        f"demo: {len(requests)} requests for a group of 4 ranks (pp 2 x tp 2, {PP_LAYERS[0]} and {PP_LAYERS[1]} layers) "
        f"of a small twin of Qwen3.5-27B with {QUOTA_BYTES // 2**20} MiB of state memory each"
    )
    summary, story = run_command(_run(_plan(requests)), "demo stopped")
    if as_json:
        click.echo(json.dumps({**summary, "story": story.as_dict() if story else None}, indent=2))
    else:
        _print(summary, story)
    if summary["errors"]:
        sys.exit(1)


def _plan(requests: Sequence[TraceRequest]) -> Any:
    from stateroom_ops.group_settings import GroupSettings, twin_config
    from stateroom_ops.replay_run import ReplayPlan
    from stateroom_ops.run_dir import base_dir

    name = f"demo-{os.getpid()}"
    settings = GroupSettings(
        config=twin_config(),
        quota_bytes=(QUOTA_BYTES,) * 4,
        run_dir=base_dir() / name,
        name=name,
        tp_size=2,
        pp_size=2,
        pp_layers=PP_LAYERS,
        max_batch_size=48,
        warmup="1,2,4,8,16,32,64,96",
    )
    span_s = max(requests[-1].arrival_ms / 1000, 0.001)
    return ReplayPlan(requests, max(0.01, span_s / ARRIVALS_SECONDS), STEP_MS, group=settings)


async def _run(plan: Any) -> tuple[dict[str, Any], Any]:
    from stateroom_ops.replay_run import replay_session
    from stateroom_ops.story import StoryError, longest_story

    async with replay_session(plan, say, lambda tally: None) as running:
        _say_agreement(running)
        watching = asyncio.create_task(_watch(running))
        try:
            tally = await running.run()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        summary = await running.summary(tally)
    # the services have stopped, and with them every span has been written
    try:
        return summary, longest_story(plan.group.trace_file)
    except StoryError:  # with OTLP the spans are in the collector
        return summary, None


def _say_agreement(running: Any) -> None:
    info = running.session.info
    say(
        f"executor: session of {info.seats} seats, {info.reserved_slots} reserved row, warm-up batches "
        f"{', '.join(map(str, info.warmup_batches))}, up to {info.max_sequence_tokens:,} tokens a sequence"
    )


async def _watch(running: Any) -> None:
    """Draws until cancelled; on a terminal a live table, else a line now and then."""
    from rich.console import Console
    from rich.live import Live

    from stateroom.errors import StateroomError
    from stateroom_ops.demo_view import live_line, live_view
    from stateroom_ops.rank_words import cap_of

    tally = running.executor.tally
    if not sys.stderr.isatty():
        cap = cap_of((await running.operator.describe()).agreed)
        while True:
            await asyncio.sleep(LINE_EVERY_SECONDS)
            say(live_line(tally, cap))
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        while True:
            with contextlib.suppress(StateroomError):
                live.update(live_view(await running.operator.describe(), tally), refresh=True)
            await asyncio.sleep(LOOK_EVERY_SECONDS)


def _print(summary: dict[str, Any], story: Any) -> None:
    from stateroom_ops.story_view import story_text
    from stateroom_ops.summary_view import print_summary

    click.echo()
    print_summary(summary)
    if story is not None:
        click.echo(f"\nThe longest wait, as `stateroom why {story.sequence_id}` tells it:\n")
        click.echo(story_text(story))

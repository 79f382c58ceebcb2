"""`stateroom up`: a scheduler and its ranks on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from stateroom_ops.group_options import group_options, settings_from
from stateroom_ops.terminal import run_command, say

__all__ = ["up"]

RESTART_AFTER_SECONDS = 1.0  # so that one that dies at once does not spin


@click.command(help="Start a scheduler and --tp x --pp ranks as processes on unix sockets. Ctrl-C stops all.")
@group_options
@click.option("--restart", is_flag=True, help="Start a rank that dies again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout once the group is ready.")
def up(restart: bool, as_json: bool, **flags: Any) -> None:
    """The command; exit code 1 if the group does not become ready or its scheduler ends."""
    settings = settings_from("default", **flags)
    run_command(_run(settings, restart, as_json), "all stopped")


async def _run(settings: Any, restart: bool, as_json: bool) -> None:
    from stateroom_ops.local_group import LocalGroup, LocalGroupError

    say(f"starting group {settings.name!r}: {settings.ranks_count} ranks in {settings.run_dir}")
    async with LocalGroup(settings, say) as group:
        _announce(group, as_json)
        sentence = await _mourn(group, restart)
    raise LocalGroupError(f"{sentence}; without it the group was stopped")


def _announce(group: Any, as_json: bool) -> None:
    if as_json:
        found = {
            "name": group.settings.name,
            "scheduler": group.scheduler_address,
            "ranks": list(group.rank_addresses),
            "trace_file": str(group.trace_file),
            "run_dir": str(group.settings.run_dir),
        }
        click.echo(json.dumps(found))
    say(f"executors connect to {group.scheduler_address}")
    say("in another terminal: stateroom status, stateroom replay --connect ADDR, stateroom why ID")
    say("Ctrl-C stops all")


async def _mourn(group: Any, restart: bool) -> str:
    """Says every death of a rank until the scheduler dies; then the sentence about it. With --restart a
    rank comes back, and its residents are told to compute again (rule D2)."""
    while True:
        rank, sentence = await group.next_death()
        if rank is None:
            return str(sentence)
        say(f"{sentence}; {'it is started again' if restart else 'the others stay up'}")
        if restart:
            await asyncio.sleep(RESTART_AFTER_SECONDS)
            await group.restart(rank)

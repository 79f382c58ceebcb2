"""`stateroom why`: what one sequence waits or waited for, from a live group or from a trace file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from stateroom_ops.terminal import run_command

__all__ = ["why"]


@click.command(
    help="Why the sequence ID waits or waited: the cap and its limiting ranks, residents, position, the time of "
    "each reason, and behind whom. Asks the running group; else reads the latest trace. Without ID: the longest "
    "wait of the trace."
)
@click.argument("sequence_id", metavar="[ID]", required=False)
@click.option("--connect", metavar="ADDR", help="Ask the scheduler at this address.")
@click.option("--trace", type=click.Path(path_type=Path), help="Read this trace file instead.")
@click.option("--run-dir", type=click.Path(path_type=Path), help="Folder of groups; default as for `up`.")
@click.option("--json", "as_json", is_flag=True, help="The story as one JSON object.")
def why(
    sequence_id: str | None, connect: str | None, trace: Path | None, run_dir: Path | None, as_json: bool
) -> None:
    """The command; exit code 1 and one sentence for an id that nobody knows."""
    if connect and trace:
        raise click.UsageError("--connect asks a scheduler and --trace reads a file: give one of the two")
    if connect and sequence_id is None:
        raise click.UsageError("--connect needs the ID of a sequence: add it, or read a trace")
    from stateroom_ops.story import StoryError
    from stateroom_ops.story_view import story_text

    try:
        story = _story(sequence_id, connect, trace, run_dir)
    except StoryError as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(story.as_dict(), indent=2) if as_json else story_text(story))


def _story(sequence_id: str | None, connect: str | None, trace: Path | None, run_dir: Path | None) -> Any:
    from stateroom_ops.run_dir import base_dir, latest_trace, running_groups
    from stateroom_ops.story import StoryError, longest_story, story_from_trace

    base = run_dir or base_dir()
    if connect and sequence_id:
        return run_command(_ask(connect, sequence_id), "stopped")
    if trace is None and sequence_id:
        for group in running_groups(base):
            story = run_command(_ask_if_known(group.scheduler_address, sequence_id), "stopped")
            if story is not None:
                return story
    path = trace or latest_trace(base)
    if path is None:
        raise StoryError(
            f"no group runs and no trace lies in {str(base)!r}: give --connect an address or --trace a file"
        )
    return story_from_trace(path, sequence_id) if sequence_id else longest_story(path)


async def _ask(address: str, sequence_id: str) -> Any:
    from stateroom_ops.operator_client import OperatorClient
    from stateroom_ops.story import story_from_explain

    async with OperatorClient(address) as client:
        return story_from_explain(await client.explain(sequence_id), address)


async def _ask_if_known(address: str, sequence_id: str) -> Any:
    """None where this group is gone or does not know it: its trace may."""
    from stateroom.errors import StateroomError

    try:
        return await _ask(address, sequence_id)
    except StateroomError:
        return None

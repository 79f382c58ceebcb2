"""`stateroom status`: the agreed cap, every rank's answer beside it, who holds and who waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from stateroom_ops.terminal import run_command

__all__ = ["running_address", "status"]


@click.command(help="The agreed cap and which rank limits it, every rank, who holds a slot and who waits.")
@click.option("--connect", metavar="ADDR", help="The scheduler; default the running local group.")
@click.option("--run-dir", type=click.Path(path_type=Path), help="Folder of groups; default as for `up`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(connect: str | None, run_dir: Path | None, as_json: bool) -> None:
    """The command; exit code 1 if no scheduler answers."""
    address = connect or running_address(run_dir)
    description = run_command(_ask(address), "stopped")
    from stateroom_ops.status_view import status_object, status_view

    if as_json:
        click.echo(json.dumps(status_object(address, description), indent=2))
    else:
        from stateroom_ops.terminal import wide_console

        wide_console().print(status_view(address, description))


def running_address(run_dir: Path | None) -> str:
    """The scheduler of the latest local group; ClickException if none runs."""
    from stateroom_ops.run_dir import base_dir, running_groups

    base = run_dir or base_dir()
    groups = running_groups(base)
    if not groups:
        raise click.ClickException(
            f"no local group runs in {str(base)!r}: start one with `stateroom up`, or give --connect an address"
        )
    return groups[0].scheduler_address


async def _ask(address: str) -> Any:
    from stateroom_ops.operator_client import OperatorClient

    async with OperatorClient(address) as client:
        return await client.describe()

"""`stateroom quota`: another quota for one rank of a running group (rule B8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from stateroom.residency.quantity import QuantityError, format_gib, parse_bytes
from stateroom_ops.terminal import run_command

__all__ = ["quota"]


@click.command(
    help="Lowers or raises the quota of one rank while it runs, e.g. `stateroom quota --rank 1 20GiB`."
)
@click.argument("size")
@click.option("--rank", type=click.IntRange(0), required=True, help="Rank number, as in `stateroom status`.")
@click.option("--connect", metavar="ADDR", help="The scheduler; default the running local group.")
@click.option("--run-dir", type=click.Path(path_type=Path), help="Folder of groups; default as for `up`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def quota(size: str, rank: int, connect: str | None, run_dir: Path | None, as_json: bool) -> None:
    """The command. No resident is ended; the cap falls to any number, and rises to the rows that are built."""
    from stateroom_ops.status_command import running_address

    try:
        quota_bytes = parse_bytes(size)
    except QuantityError as error:
        raise click.UsageError(str(error)) from None
    answer = run_command(_set(connect or running_address(run_dir), rank, quota_bytes), "stopped")
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    before, now = format_gib(answer["previous_quota_bytes"]), format_gib(quota_bytes)
    click.echo(f"rank {rank}: quota {before} -> {now}; {answer['sentence']}")


async def _set(address: str, number: int, quota_bytes: int) -> dict[str, Any]:
    from stateroom_ops.operator_client import OperatorClient, set_quota

    async with OperatorClient(address) as client:
        ranks = (await client.describe()).ranks
    if number >= len(ranks):
        raise click.UsageError(
            f"there is no rank {number}: the group at {address} has ranks 0 to {len(ranks) - 1}"
        )
    rank = ranks[number]
    answer = await set_quota(rank.address, quota_bytes, rank.report.boot_id)
    bounded = answer.affords.WhichOneof("answer") == "bounded"
    return {
        "rank": number,
        "quota_bytes": quota_bytes,
        "previous_quota_bytes": answer.previous_quota_bytes,
        "affords": answer.affords.bounded.slots_count if bounded else None,
        "built_slots": answer.built_slots,
        "sentence": answer.sentence,
    }

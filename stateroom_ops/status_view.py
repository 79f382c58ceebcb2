"""The agreement and every rank's share of it, as a table and as an object."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from rich.console import Group
from rich.table import Table
from rich.text import Text

from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types
from stateroom_ops.rank_words import cap_of, quota_words, residency_words

__all__ = ["ranks_table", "status_object", "status_view"]


def status_object(address: str, d: pb.DescribeResidencyResponse) -> dict[str, Any]:
    """Plain names first, the whole answer under `description`."""
    return {
        "scheduler": address,
        "term": d.term,
        "asked": d.asked,
        "cap": cap_of(d.agreed),
        "agreed": residency_words(d.agreed),
        "unbounded": d.agreed.WhichOneof("answer") == "unbounded",
        "pending": d.agreed.WhichOneof("answer") in (None, "pending"),
        "limiting_ranks": list(d.limiting_ranks),
        "residents": d.residents,
        "residents_by_kind": {_kind(c.state): c.count for c in d.residents_by_kind},
        "peak_residents": d.peak_residents,
        "waiting": d.waiting,
        "waiting_by_reason": dict(d.waiting_by_reason),
        "sentence": d.sentence,
        "description": MessageToDict(d, preserving_proto_field_name=True),
    }


def status_view(address: str, d: pb.DescribeResidencyResponse) -> Group:
    """What `stateroom status` prints."""
    held = ", ".join(f"{c.count} {_kind(c.state).lower()}" for c in d.residents_by_kind if c.count)
    waits = ", ".join(f"{count} for {reason}" for reason, count in d.waiting_by_reason.items() if count)
    return Group(
        Text(d.sentence, style="bold"),
        ranks_table(d),
        *(Text(f"rank {n} {rank.status}") for n, rank in enumerate(d.ranks) if rank.status != "ready"),
        Text(f"resident {d.residents}{f' ({held})' if held else ''}, {d.peak_residents} at most so far"),
        Text(f"waiting {d.waiting}{f': {waits}' if waits else ''}"),
        Text(f"scheduler {address}, term {d.term}", style="dim"),
    )


def ranks_table(d: pb.DescribeResidencyResponse) -> Table:
    """A row a rank: what it affords, why, and its slots by state."""
    table = Table(box=None, pad_edge=False)
    table.add_column("rank", no_wrap=True)
    for column in ("affords", "agreed"):
        table.add_column(column, no_wrap=True)
    for column in ("free", "bound", "cleaning"):
        table.add_column(column, justify="right")
    table.add_column("because")
    for number, rank in enumerate(d.ranks):
        table.add_row(*_row(number, rank), style="bold" if rank.limiting else "")
    return table


def _row(number: int, rank: pb.RankResidency) -> tuple[str, ...]:
    name = f"{number}{' limits' if rank.limiting else ''}"
    if not rank.HasField("report"):
        return (name, "pending", "", "", "", "", rank.address)
    slots = rank.report.slots
    because = quota_words(rank)
    if rank.unused_slots:
        because += f"; {rank.unused_slots} slots more than the group uses"
    return (
        name,
        residency_words(rank.report.local),
        residency_words(rank.report.agreed),
        str(slots.free),
        str(slots.bound),
        str(slots.quarantined + slots.scrubbing),
        because,
    )


def _kind(state: types.SequenceState.ValueType) -> str:
    return types.SequenceState.Name(state).removeprefix("SEQUENCE_STATE_")

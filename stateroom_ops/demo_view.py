"""The live table of the demo: ranks, who holds, who waits and why."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from stateroom.residency.quantity import format_bytes
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom_ops.rank_words import cap_of
from stateroom_ops.replay_tally import ReplayTally, percentile

__all__ = ["live_line", "live_view"]

BAR_WIDTH = 30
RANK_BAR_WIDTH = 18


def live_view(d: pb.DescribeResidencyResponse, tally: ReplayTally) -> Group:
    """A screenful, from the group's last answer and the executor's own counts."""
    cap = cap_of(d.agreed) or d.asked
    return Group(_ranks(d), Text(), _load(d, tally, cap))


def live_line(tally: ReplayTally, cap: int | None) -> str:
    """The same in a line, where there is no terminal."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in tally.waiting_by_reason.items())
    of = f"/{cap}" if cap is not None else ""
    return (
        f"{tally.clock_ms / 1000:5.1f} s  resident {tally.residents}{of}  waiting {tally.waiting}"
        f"{f' ({reasons})' if reasons else ''}  finished {tally.finished}/{tally.requests}"
    )


def _ranks(d: pb.DescribeResidencyResponse) -> Table:
    """Fits in 80 columns."""
    table = Table(box=None, pad_edge=False)
    for column in ("rank", "stage", "slots held", "", "because"):
        table.add_column(column, no_wrap=True)
    for number, rank in enumerate(d.ranks):
        slots, place, terms = rank.report.slots, rank.report.place, rank.report.terms
        held = slots.bound + slots.quarantined + slots.scrubbing
        most = slots.rows - slots.reserved - slots.withheld
        table.add_row(
            f"{number}{' limits' if rank.limiting else ''}",
            f"pp {place.pp_rank} tp {place.tp_rank}",
            _bar(held, most, RANK_BAR_WIDTH),
            f"{held}/{most}",
            f"{terms.recurrent_layers_count} layers, {format_bytes(terms.slot_bytes)} a slot",
            style="bold" if rank.limiting else "",
        )
    return table


def _load(d: pb.DescribeResidencyResponse, tally: ReplayTally, cap: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    seconds = tally.clock_ms / 1000
    table.add_row("resident", f"{_bar(tally.residents, cap)} {tally.residents}/{cap}")
    most = max(tally.waiting_by_reason.values(), default=0)
    for reason, count in tally.waiting_by_reason.items():
        table.add_row("waiting", f"{_bar(count, max(most, cap))} {count} {reason}")
    if not tally.waiting_by_reason:
        table.add_row("waiting", "nobody")
    table.add_row(
        "admission wait",
        f"p50 {percentile(tally.waits_ms, 0.5):,.0f} ms, p99 {percentile(tally.waits_ms, 0.99):,.0f} ms",
    )
    rate = tally.tokens_generated / seconds if seconds else 0.0
    table.add_row("finished", f"{_bar(tally.finished, tally.requests)} {tally.finished}/{tally.requests}")
    table.add_row("", f"{seconds:.1f} s, {rate:,.0f} tokens/s, {tally.errors_count} errors")
    return table


def _bar(value: int, most: int, width: int = BAR_WIDTH) -> str:
    filled = min(width, round(width * value / most)) if most else 0
    return "█" * filled + "░" * (width - filled)

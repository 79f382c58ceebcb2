"""The plan for people: a table of ranks, the cap and why, what would raise it. At most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from stateroom.residency.answer import Bounded
from stateroom.residency.phrases import counted, number_ranges, ranks_text
from stateroom.residency.plan import GroupPlan, RankPlan
from stateroom.residency.quantity import format_bytes
from stateroom.residency.remedies import Remedy
from stateroom.residency.trade import LengthRow

__all__ = ["WIDTH", "plan_text"]

WIDTH = 100
_HEADS = ("ranks", "layers", "recur", "attn", "conv", "recurrent", "slot", "quota", "rows", "local", "spare")


def plan_text(
    plan: GroupPlan,
    remedies: tuple[Remedy, ...],
    lengths: tuple[LengthRow, ...],
    warmup: tuple[tuple[int, ...], tuple[int, ...]],
) -> str:
    """All sections, each an indented block under its heading."""
    blocks = [
        [*_model_lines(plan)],
        [*_table([_HEADS, *_rank_rows(plan)])],
        [*_answer_lines(plan)],
        [*_dtype_lines(plan)],
        [*_remedy_lines(remedies)],
        [*_length_lines(plan, lengths)],
        [*_warmup_lines(plan, warmup)],
        [*_wrapped(f"warning: {warning}" for warning in plan.warnings)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _wrapped(sentences: Iterator[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from textwrap.wrap(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _model_lines(plan: GroupPlan) -> Iterator[str]:
    model, request = plan.request.model, plan.request
    attention = sum(rank.state.attention_layers_count for rank in plan.ranks[:: request.tp_size])
    yield (
        f"{model.family} ({model.mechanism}): {model.layer_count} layers, "
        f"{model.recurrent_layer_count} recurrent, {attention} with attention"
    )
    beside = f", one of {request.dp_size} groups" if request.dp_size > 1 else ""
    asked = counted(request.max_batch_size, "sequence")
    if request.pp_size > 1:
        asked += f" x {request.pp_size} stages in flight"
    if request.sequence_slots > 1:
        asked += f" x {request.sequence_slots} slots each"
    yield f"tp {request.tp_size}, pp {request.pp_size}{beside}; asked: {asked} = {counted(request.asked, 'slot')}"


def _rank_rows(plan: GroupPlan) -> Iterator[tuple[str, ...]]:
    """One line for each run of ranks that are alike (the TP ranks of a stage)."""
    for cells, ranks in groupby(plan.ranks, key=_rank_cells):
        yield number_ranges(rank.rank for rank in ranks), *cells


def _rank_cells(rank: RankPlan) -> tuple[str, ...]:
    state = rank.state
    layers = f"{state.layers[0]}-{state.layers[-1]}" if state.layers else "none"
    return (
        layers,
        str(state.recurrent_layers_count),
        str(state.attention_layers_count),
        format_bytes(state.conv_bytes),
        format_bytes(state.recurrent_bytes),
        format_bytes(state.slot_bytes),
        format_bytes(rank.terms.quota_bytes),
        str(rank.rows),
        _local(rank),
        format_bytes(rank.spare_bytes),
    )


def _local(rank: RankPlan) -> str:
    return str(rank.local.slots_count) if isinstance(rank.local, Bounded) else "all"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else " "
    for row in rows:
        yield gap.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _answer_lines(plan: GroupPlan) -> Iterator[str]:
    reserved = ", ".join(f"{count} {name}" for name, count in plan.request.reserved_by_name.items())
    seats = plan.agreement.seats
    rows = f"{counted(plan.rows, 'row')} a rank (reserved: {reserved})"
    if plan.cap is None:
        yield f"cap: unbounded, all {seats} asked fit; {rows}"
        return
    sequences = f" = {counted(plan.sequences, 'sequence')}" if plan.request.sequence_slots > 1 else ""
    cap = f"cap: {counted(seats, 'slot')}{sequences}, guarantee {plan.request.guarantee}; {rows}"
    yield from _wrapped(iter([cap, f"limited by {ranks_text(plan.agreement.limiting_ranks)}"]))
    unused = sum(rank.unused_slots for rank in plan.ranks)
    if unused:
        yield f"{counted(unused, 'slot')} that other ranks would afford stay unused"


def _dtype_lines(plan: GroupPlan) -> Iterator[str]:
    state = plan.ranks[0].state
    for name, dtype in (
        ("SSM state", state.ssm_dtype),
        ("conv state", state.conv_dtype),
        ("KV", state.kv_dtype),
    ):
        if dtype is not None and dtype.is_used:
            yield f"{name} in {dtype.dtype}, from {dtype.source}"
    if state.padding_bytes or state.auxiliary_bytes:
        yield (
            f"of a slot {format_bytes(state.auxiliary_bytes)} are draft states and "
            f"{format_bytes(state.padding_bytes)} alignment padding"
        )


def _remedy_lines(remedies: tuple[Remedy, ...]) -> Iterator[str]:
    if remedies:
        yield "what would raise it:"
    for remedy in remedies:
        yield from textwrap.wrap(
            remedy.sentence, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )


def _length_lines(plan: GroupPlan, lengths: tuple[LengthRow, ...]) -> Iterator[str]:
    errors = {str(rank.state.kv_error) for rank in plan.ranks if rank.state.kv_error is not None}
    yield from _wrapped(f"no KV answer: {error}" for error in sorted(errors))
    if not any(row.seats and row.kv_sequence_bytes for row in lengths):
        return
    yield "guarantee full_length, all of the quota shared by states and KV:"
    table = [("longest", "cap", "KV of one")]
    table += [
        (
            f"{row.max_seq_len} tokens",
            f"all {row.seats}" if row.unbounded else str(row.seats),
            format_bytes(row.kv_sequence_bytes),
        )
        for row in lengths
    ]
    yield from (f"  {line}" for line in _table(table))


def _warmup_lines(plan: GroupPlan, warmup: tuple[tuple[int, ...], tuple[int, ...]]) -> Iterator[str]:
    asked, batches = warmup
    if asked:
        truncated = [str(batch) for batch in asked if batch > plan.agreement.seats]
        note = f"; {', '.join(truncated)} truncated to the cap" if truncated else ""
        yield from _wrapped(iter([f"warm-up batches: {', '.join(map(str, batches)) or 'none'}{note}"]))

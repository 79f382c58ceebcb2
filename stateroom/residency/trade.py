"""The trade between the two guarantees: cap against sequence length, and what is left for KV."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.plan import GroupPlan, PlanRequest, plan_group

__all__ = ["LengthRow", "length_rows"]

_SHORTEST_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class LengthRow:
    """One sequence length: seats under `full_length`, and the KV bytes of one such sequence on the
    rank that keeps most of it. `unbounded` where everything asked is affordable."""

    max_seq_len: int
    seats: int
    unbounded: bool
    kv_sequence_bytes: int
    limiting_ranks: tuple[int, ...]


def length_rows(request: PlanRequest) -> tuple[LengthRow, ...]:
    """Lengths doubling from 1024 to the longest asked; empty where no KV answer can be given."""
    longest = request.max_seq_len or request.model.max_position_embeddings
    if longest is None:
        return ()
    lengths, length = [], min(_SHORTEST_TOKENS, longest)
    while length < longest:
        lengths.append(length)
        length *= 2
    try:
        return tuple(_row(request, length) for length in (*lengths, longest))
    except ConfigError:  # the KV answer's own error; the plan shows it
        return ()


def _row(request: PlanRequest, max_seq_len: int) -> LengthRow:
    plan: GroupPlan = plan_group(replace(request, guarantee="full_length", max_seq_len=max_seq_len))
    return LengthRow(
        max_seq_len=max_seq_len,
        seats=plan.agreement.seats,
        unbounded=plan.cap is None,
        kv_sequence_bytes=max(rank.terms.kv_sequence_bytes for rank in plan.ranks),
        limiting_ranks=plan.agreement.limiting_ranks,
    )

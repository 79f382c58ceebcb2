"""One rank and one agreement in words and rows, for terminals."""

from __future__ import annotations

from stateroom.residency.quantity import format_bytes
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types

__all__ = ["cap_of", "quota_words", "rank_line", "residency_words"]


def residency_words(residency: types.Residency) -> str:
    """'pending', 'unbounded' or '64 slots' (an unset answer reads as pending, rule B1)."""
    match residency.WhichOneof("answer"):
        case "unbounded":
            return "unbounded"
        case "bounded":
            return f"{residency.bounded.slots_count} slots"
        case _:
            return f"pending ({residency.pending.reason})" if residency.pending.reason else "pending"


def cap_of(residency: types.Residency) -> int | None:
    """The bound, None where unbounded or pending."""
    return residency.bounded.slots_count if residency.WhichOneof("answer") == "bounded" else None


def quota_words(rank: pb.RankResidency) -> str:
    """The sum behind a rank's answer in a few words."""
    terms = rank.report.terms
    parts = []
    if terms.recurrent_layers_count:
        parts.append(
            f"{format_bytes(terms.slot_bytes)} a slot ({terms.recurrent_layers_count} recurrent layers, "
            f"{terms.ssm_dtype.dtype})"
        )
    if terms.kv_sequence_bytes:
        parts.append(f"{format_bytes(terms.kv_sequence_bytes)} of KV a full-length sequence")
    if not parts:
        return f"{terms.attention_layers_count} attention layers, no state to hold"
    return f"{' and '.join(parts)} in {format_bytes(terms.quota_bytes)}"


def rank_line(number: int, rank: pb.RankResidency) -> str:
    """What `up` says of a rank while the group starts."""
    if not rank.HasField("report"):
        return f"rank {number}: waiting for it at {rank.address}"
    return f"rank {number}: affords {residency_words(rank.report.local)}; {quota_words(rank)}"

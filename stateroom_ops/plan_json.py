"""The plan as a JSON document: version 1 of the schema in stateroom_ops/schemas/plan.v1.json.

Exact integers, bytes unless the name says otherwise. "No limit" is `unbounded: true` beside a null
number, never a null alone (rule B1). Fields are added within a version; none is renamed or removed.
"""

from __future__ import annotations

from stateroom.residency.answer import Answer, Bounded
from stateroom.residency.plan import GroupPlan, RankPlan
from stateroom.residency.rank_state import SourcedDtype
from stateroom.residency.remedies import Remedy
from stateroom.residency.trade import LengthRow

__all__ = ["SCHEMA_VERSION", "plan_document"]

SCHEMA_VERSION = 1


def plan_document(
    plan: GroupPlan,
    remedies: tuple[Remedy, ...],
    lengths: tuple[LengthRow, ...],
    warmup: tuple[tuple[int, ...], tuple[int, ...]],
) -> dict[str, object]:
    """The whole document; `warmup` is the batches asked for and those that fit (rule B5)."""
    request = plan.request
    return {
        "schema_version": SCHEMA_VERSION,
        "model": {
            "family": request.model.family,
            "mechanism": request.model.mechanism,
            "model_type": request.model.model_type,
            "layers": request.model.layer_count,
            "recurrent_layers": request.model.recurrent_layer_count,
            "max_position_embeddings": request.model.max_position_embeddings,
        },
        "layout": {
            "tp": request.tp_size,
            "pp": request.pp_size,
            "pp_layers": list(request.parallel(0).split(request.model.layer_count)),
            "dp": request.dp_size,
            "cp": request.cp_size,
        },
        "guarantee": request.guarantee,
        "max_batch_size": request.max_batch_size,
        "slots_per_sequence": request.sequence_slots,
        "asked": request.asked,
        **_answer("cap", plan.agreement.answer),
        "seats": plan.agreement.seats,
        "sequences": plan.sequences,
        "rows": plan.rows,
        "reserved": dict(request.reserved_by_name),
        "limiting_ranks": list(plan.agreement.limiting_ranks),
        "unused_slots": sum(rank.unused_slots for rank in plan.ranks),
        "ranks": [_rank(rank) for rank in plan.ranks],
        "remedies": [_remedy(remedy) for remedy in remedies],
        "lengths": [_length(row) for row in lengths],
        "warmup": {
            "asked": list(warmup[0]),
            "batches": list(warmup[1]),
            "truncated": [batch for batch in warmup[0] if batch > plan.agreement.seats],
        },
        "warnings": list(plan.warnings),
        "error": plan.error or None,
    }


def _answer(name: str, answer: Answer) -> dict[str, object]:
    bounded = isinstance(answer, Bounded)
    unbounded = "unbounded" if name == "cap" else f"{name}_unbounded"
    return {name: answer.slots_count if isinstance(answer, Bounded) else None, unbounded: not bounded}


def _rank(rank: RankPlan) -> dict[str, object]:
    state = rank.state
    return {
        "rank": rank.rank,
        "tp_rank": rank.parallel.tp_rank,
        "pp_rank": rank.parallel.pp_rank,
        "first_layer": state.layers[0] if state.layers else None,
        "layers": len(state.layers),
        "recurrent_layers": state.recurrent_layers_count,
        "attention_layers": state.attention_layers_count,
        "quota_bytes": rank.terms.quota_bytes,
        "fixed_bytes": rank.terms.fixed_bytes,
        "conv_bytes": state.conv_bytes,
        "recurrent_bytes": state.recurrent_bytes,
        "auxiliary_bytes": state.auxiliary_bytes,
        "padding_bytes": state.padding_bytes,
        "slot_bytes": state.slot_bytes,
        "rows": rank.rows,
        "pool_bytes": rank.rows * state.slot_bytes,
        **_answer("local", rank.local),
        "unused_slots": rank.unused_slots,
        "spare_bytes": rank.spare_bytes,
        **_dtype("dtype", state.ssm_dtype),
        **_dtype("conv_dtype", state.conv_dtype),
        **_dtype("kv_dtype", state.kv_dtype),
        "kv_bytes_per_token": None if state.kv_error else state.kv_token_bytes,
        "kv_sequence_bytes": rank.terms.kv_sequence_bytes,
        "kv_error": str(state.kv_error) if state.kv_error else None,
        "layout_hash": state.layout.hash,
    }


def _dtype(name: str, dtype: SourcedDtype | None) -> dict[str, object]:
    said = dtype is not None and dtype.is_used
    return {
        name: dtype.dtype if dtype is not None and said else None,
        f"{name}_source": dtype.source if dtype is not None else None,
    }


def _remedy(remedy: Remedy) -> dict[str, object]:
    return {
        "change": remedy.change,
        "flags": list(remedy.flags),
        **_answer("cap", remedy.promised),
        "seats": remedy.seats,
    }


def _length(row: LengthRow) -> dict[str, object]:
    return {
        "max_seq_len": row.max_seq_len,
        "cap": None if row.unbounded else row.seats,
        "unbounded": row.unbounded,
        "seats": row.seats,
        "kv_sequence_bytes": row.kv_sequence_bytes,
        "limiting_ranks": list(row.limiting_ranks),
    }

"""Short ways to plan groups in tests."""

from __future__ import annotations

from typing import Any

from stateroom.residency.model import read_model
from stateroom.residency.plan import GroupPlan, PlanRequest, plan_group
from stateroom.residency.quantity import parse_bytes
from stateroom.residency.rank_state import StateOptions
from stateroom.residency.sizing import SizingTerms
from tests.residency.published import config

QWEN_SLOT_BYTES = 78_446_592  # Qwen3.5-27B, TP 1, everything in bfloat16
QUOTA_BYTES = parse_bytes("24.86GiB")
BF16 = StateOptions(ssm_dtype="bfloat16", model_dtype="bfloat16")


def request(*quotas: int | str, name: str = "qwen3.5-27b", ask: int = 512, **more: Any) -> PlanRequest:
    """A request for a published model; quotas in bytes or as text, one a rank."""
    quota_bytes = tuple(parse_bytes(q) if isinstance(q, str) else q for q in quotas)
    options = more.pop("options", BF16)
    return PlanRequest(read_model(config(name)), quota_bytes, ask, options, **more)


def planned(*quotas: int | str, **more: Any) -> GroupPlan:
    """The plan of that request."""
    return plan_group(request(*quotas, **more))


def state_terms(quota_bytes: int, slot_bytes: int, reserved_slots: int = 1) -> SizingTerms:
    """Terms of the state guarantee."""
    return SizingTerms(quota_bytes, slot_bytes, reserved_slots)

"""What would raise the cap: every promise is planned again, and is neither too small nor too large."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from stateroom.residency.plan import GroupPlan, PlanRequest, plan_group
from stateroom.residency.pp_split import best_split
from stateroom.residency.rank_state import StateOptions
from stateroom.residency.remedies import Remedy, remedies
from tests.residency.groups import QUOTA_BYTES, planned

AUTO = StateOptions()
PLANS = {
    "one rank, fp32": {"quotas": [QUOTA_BYTES], "options": AUTO},
    "tp 2 x pp 2, uneven quotas": {
        "quotas": ["24GiB", "24GiB", "20GiB", "22GiB"], "options": AUTO, "tp_size": 2, "pp_size": 2, "ask": 2000
    },
    "pp 3": {"quotas": ["6GiB"] * 3, "options": AUTO, "pp_size": 3},
    "full length": {"quotas": ["80GiB"], "options": AUTO, "guarantee": "full_length", "max_seq_len": 32768},
    "draft tokens": {"quotas": ["8GiB"], "options": StateOptions(draft_tokens=4, draft_layout="extra_states")},
    "usable 9/10": {
        "quotas": ["80GiB"], "options": AUTO, "guarantee": "full_length", "max_seq_len": 4096, "usable_numerator": 9,
        "usable_denominator": 10, "fixed_bytes": 123_456_789,
    },
    "nothing fits": {"quotas": ["100MiB"], "options": AUTO},
}  # fmt: skip


def _plan(name: str) -> GroupPlan:
    arguments = dict(PLANS[name])
    return planned(*arguments.pop("quotas"), **arguments)  # type: ignore[misc, arg-type]


def _all() -> list[tuple[str, Remedy]]:
    return [(name, remedy) for name in PLANS for remedy in remedies(_plan(name))]


@pytest.mark.parametrize("name", PLANS)
def test_each_remedy_gives_exactly_the_promised_cap(name: str) -> None:
    plan = _plan(name)
    found = remedies(plan)
    assert found
    for remedy in found:
        then = plan_group(remedy.request)
        assert then.agreement.answer == remedy.promised
        assert then.agreement.seats == remedy.seats > plan.agreement.seats
        assert str(remedy.seats) in remedy.sentence


@pytest.mark.parametrize("name", PLANS)
def test_the_next_slot_costs_exactly_that(name: str) -> None:
    """One byte less on any rank that was raised gives nothing."""
    plan = _plan(name)
    nearest = remedies(plan)[0].request
    assert plan_group(nearest).agreement.seats == plan.agreement.seats + 1
    for rank, (now, then) in enumerate(zip(plan.request.quota_bytes, nearest.quota_bytes, strict=True)):
        if then > now:
            less = [*nearest.quota_bytes]
            less[rank] -= 1
            short = plan_group(replace(nearest, quota_bytes=tuple(less)))
            assert short.agreement.seats == plan.agreement.seats


def test_all_kinds_of_remedy_are_found() -> None:
    flags = {remedy.flags[0] for _, remedy in _all()}
    assert flags == {"--quota", "--ssm-dtype", "--pp-layers", "--draft-tokens", "--max-seq-len", "--tp"}


def test_an_unbounded_group_needs_none() -> None:
    assert remedies(planned("80GiB")) == ()


def test_a_dtype_that_the_kernels_fix_is_no_remedy() -> None:
    plan = planned("2GiB", name="kimi-linear-48b-a3b", options=StateOptions(model_dtype="bf16"))
    assert "--ssm-dtype" not in {remedy.flags[0] for remedy in remedies(plan)}


def _best_by_force(request: PlanRequest) -> int:
    layers = request.model.layer_count
    cuts = combinations(range(1, layers), request.pp_size - 1)
    splits = (tuple(b - a for a, b in zip((0, *cut), (*cut, layers), strict=True)) for cut in cuts)
    return max(plan_group(replace(request, pp_layers=split)).agreement.seats for split in splits)


@pytest.mark.parametrize(
    ("name", "quotas", "more"),
    [
        ("qwen3.5-0.8b", ["300MiB", "200MiB", "250MiB"], {}),
        ("lfm2-1.2b", ["3MiB", "1MiB", "2MiB"], {}),
        ("kimi-linear-48b-a3b", ["1GiB", "2GiB", "1GiB"], {"guarantee": "full_length", "max_seq_len": 2048}),
        ("nemotron-nano-9b-v2", ["3GiB", "2GiB"], {}),
    ],
)
def test_the_best_split_is_the_best_of_all_splits(
    name: str, quotas: list[str], more: dict[str, object]
) -> None:
    plan = planned(*quotas, name=name, pp_size=len(quotas), options=StateOptions(model_dtype="bf16"), **more)
    split = best_split(plan)
    best = _best_by_force(plan.request)
    found = plan if split is None else plan_group(replace(plan.request, pp_layers=split))
    assert found.agreement.seats == best

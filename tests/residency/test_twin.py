"""The twin of a real model: as many rows, the same division by TP, a fraction of the bytes."""

from __future__ import annotations

import pytest

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.model import read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.plan import PlanRequest, plan_group
from stateroom.residency.rank_state import StateOptions, rank_state
from stateroom.residency.twin import scaled_quota, shrink
from tests.residency.groups import BF16, QUOTA_BYTES, QWEN_SLOT_BYTES, planned
from tests.residency.published import MODEL_NAMES, config

MODEL_BF16 = StateOptions(model_dtype="bfloat16")


def test_the_twin_of_qwen_has_the_340_rows_of_the_real_one() -> None:
    twin = read_model(shrink(config("qwen3.5-27b")))
    slot_bytes = rank_state(twin, Parallel(), BF16).slot_bytes
    quota_bytes = scaled_quota(QUOTA_BYTES, QWEN_SLOT_BYTES, slot_bytes)
    plan = plan_group(PlanRequest(twin, (quota_bytes,), 512, BF16))
    assert (plan.cap, plan.rows) == (planned(QUOTA_BYTES).cap, 340)
    assert plan.rows * slot_bytes < 1 << 30
    assert twin.max_position_embeddings == 262144


def test_four_ranks_of_it_fit_in_two_gib() -> None:
    twin = read_model(shrink(config("qwen3.5-27b")))
    states = [
        rank_state(twin, Parallel(tp_size=2, tp_rank=tp, pp_size=2, pp_rank=pp), BF16)
        for pp in range(2)
        for tp in range(2)
    ]
    assert 340 * sum(state.slot_bytes for state in states) < 2 * 2**30


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_has_a_twin_of_the_same_layers(name: str) -> None:
    real, twin = read_model(config(name)), read_model(shrink(config(name)))
    assert (twin.family, twin.layers) == (real.family, real.layers)
    for tp_size in (1, 2, 4, 8):
        parallel = Parallel(tp_size=tp_size)
        small, large = rank_state(twin, parallel, MODEL_BF16), rank_state(real, parallel, MODEL_BF16)
        assert small.slot_bytes * 4 <= large.slot_bytes or large.slot_bytes < 2**20
        assert len(small.layout.tensors) == len(large.layout.tensors)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_twin_may_have_fewer_layers(name: str) -> None:
    twin = read_model(shrink(config(name), layer_count=12))
    assert twin.layers == read_model(config(name)).layers[:12]


def test_a_wrapper_is_shrunk_inside() -> None:
    wrapped = {"model_type": "qwen3_5", "text_config": config("qwen3.5-27b")}
    assert read_model(shrink(wrapped)).tensors == read_model(shrink(config("qwen3.5-27b"))).tensors


def test_a_width_that_does_not_divide_is_named() -> None:
    with pytest.raises(ConfigError, match="head_dim is 256: it does not divide by 7"):
        shrink({"head_dim": 256}, factor=7)

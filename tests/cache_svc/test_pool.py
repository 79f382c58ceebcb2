"""The pool's memory: exactly the planned bytes, taken when built, cleared by assignment (C6, C7, P05)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from cache_svc import pool as pool_module
from cache_svc.pool import Pool, PoolError
from stateroom.pool_views import views
from stateroom.residency.layout import TensorSpec, place
from stateroom.residency.model import read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.rank_state import StateOptions, rank_state
from stateroom.residency.twin import shrink
from stateroom_ops.presets import preset_config

# One preset a family that keeps states; twins where the real one is large.
FAMILIES = {
    "falcon-mamba-7b": 1,
    "mamba-2.8b": 1,
    "falcon-h1-0.5b": 1,
    "granite-4.0-h-micro": 1,
    "nemotron-nano-9b-v2": 1,
    "jamba-v0.1": 1,
    "qwen3.5-27b": 8,
    "kimi-linear-48b-a3b": 8,
    "lfm2-1.2b": 1,
    "minimax-text-01": 8,
}
LAYOUT = place([TensorSpec(0, "conv", (3, 5), "bfloat16"), TensorSpec(0, "recurrent", (2, 7), "float32")])


@pytest.mark.parametrize("preset", FAMILIES)
def test_c06_a_built_pool_has_exactly_the_planned_bytes(preset: str) -> None:
    config = preset_config(preset)
    assert config is not None
    model = read_model(shrink(config, FAMILIES[preset]) if FAMILIES[preset] > 1 else config)
    state = rank_state(model, Parallel(), StateOptions())
    pool = Pool(state.layout, 3)
    try:
        assert os.fstat(pool.descriptor).st_size == 3 * state.slot_bytes == pool.size_bytes
        found = views(pool.row(0).new_zeros(0), state.layout, 0) if not state.layout.tensors else None
        assert found is None
        used = sum(t.spec.size_bytes for t in state.layout.tensors)
        assert state.slot_bytes == used + state.padding_bytes
    finally:
        pool.close()


def test_p05_the_pages_are_taken_when_it_is_built() -> None:
    pool = Pool(LAYOUT, 64)
    assert os.fstat(pool.descriptor).st_blocks * 512 >= pool.size_bytes
    pool.close()


def test_p05_memory_that_is_not_there_fails_at_start_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "available_bytes", lambda: 65 * 2**20)
    rows = 2 * 2**20 // LAYOUT.row_stride_bytes
    with pytest.raises(PoolError, match=r"needs \d+ bytes .* and 1048576 .* lower --quota"):
        Pool(LAYOUT, rows)


def test_l04_a_scrub_clears_nan_and_no_other_row() -> None:
    pool = Pool(LAYOUT, 4)
    for slot in range(4):
        pool.row(slot).fill_(0xFF)
    pool.scrub((2,))
    assert [bool(pool.row(slot).any()) for slot in range(4)] == [True, True, False, True]
    pool.close()


def test_c06_a_layer_is_a_strided_view_over_all_rows() -> None:
    pool = Pool(LAYOUT, 4)
    layers = views(pool._rows.view(-1), LAYOUT, 4)
    conv, recurrent = layers[0]["conv"], layers[0]["recurrent"]
    assert (conv.shape, conv.dtype, conv.stride(0)) == (
        (4, 3, 5),
        torch.bfloat16,
        LAYOUT.row_stride_bytes // 2,
    )
    assert (recurrent.shape, recurrent.dtype) == ((4, 2, 7), torch.float32)
    recurrent[3] = 7.0
    assert not conv.any()
    assert float(recurrent.sum()) == 7.0 * 14
    pool.close()


def test_p03_no_name_and_no_descriptor_is_left_behind() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Pool(LAYOUT, 2).close()
    assert set(os.listdir("/proc/self/fd")) <= before | set(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1
    assert (
        not [name for name in os.listdir("/dev/shm") if "stateroom" in name]
        if Path("/dev/shm").exists()
        else True
    )

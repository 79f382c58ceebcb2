"""The pool's memory: exactly the planned bytes, taken when built, cleared by assignment (C6, C7, P05)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from cache_svc import pool as pool_module
from cache_svc.memory import available_bytes
from cache_svc.pool import Pool, PoolError
from stateroom.pool_views import views
from stateroom.residency.layout import TensorSpec, place
from stateroom.residency.model import read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.rank_state import StateOptions, rank_state

DATA = Path(__file__).resolve().parents[1] / "data" / "models"
BF16 = StateOptions(ssm_dtype="bfloat16", conv_dtype="bfloat16")
LAYOUT = place([TensorSpec(0, "conv", (3, 5), "bfloat16"), TensorSpec(0, "recurrent", (2, 7), "float32")])


def _smallest_of_every_family() -> dict[str, dict[str, object]]:
    """One published config a family: the one with the least bytes a slot."""
    smallest: dict[str, tuple[int, dict[str, object]]] = {}
    for path in sorted(DATA.glob("*.json")):
        config = json.loads(path.read_text())["fields"]
        model = read_model(config)
        size_bytes = rank_state(model, Parallel(), BF16).slot_bytes
        if model.family not in smallest or size_bytes < smallest[model.family][0]:
            smallest[model.family] = (size_bytes, config)
    return {family: config for family, (_, config) in smallest.items()}


CONFIGS = _smallest_of_every_family()


@pytest.mark.parametrize("family", CONFIGS)
def test_c06_a_built_pool_has_exactly_the_planned_bytes(family: str) -> None:
    state = rank_state(read_model(CONFIGS[family]), Parallel(), BF16)
    pool = Pool(state.layout, 2)
    try:
        assert os.fstat(pool.descriptor).st_size == 2 * state.slot_bytes == pool.size_bytes
        layers = views(pool._rows.view(-1), state.layout, 2)
        used = sum(view[0].nbytes for tensors in layers.values() for view in tensors.values())
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


def test_p05_a_neighbour_that_builds_meanwhile_is_seen_before_the_next_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two ranks of one machine look at once, and both see room for one."""
    monkeypatch.setattr(pool_module, "_PIECE_BYTES", 2**20)
    looks = iter([80 * 2**20, 80 * 2**20, 80 * 2**20, 64 * 2**20])
    monkeypatch.setattr(pool_module, "available_bytes", lambda: next(looks))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PoolError, match=r"and 2097152 .* lower --quota"):
        Pool(LAYOUT, 4 * 2**20 // LAYOUT.row_stride_bytes)
    assert len(os.listdir("/proc/self/fd")) == before  # what was taken is given back


def test_d08_a_build_stops_with_its_service() -> None:
    with pytest.raises(PoolError, match="the service stops"):
        Pool(LAYOUT, 4, stopping=lambda: True)


def test_c07_no_worker_can_cut_the_pool_off_under_the_others() -> None:
    """A shrunk file would end every process that maps it with SIGBUS."""
    pool = Pool(LAYOUT, 4)
    for size_bytes in (0, pool.size_bytes * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(pool.descriptor, size_bytes)
    pool.row(1).fill_(7)
    assert pool.row(1).eq(7).all()
    pool.close()
    pool.close()  # once: the number may be another file's by now


def test_p05_cached_files_of_a_container_count_as_room(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 4000 kB\n")
    names = {
        "memory.max": "1000000",
        "memory.current": "900000",
        "memory.stat": "anon 1\ninactive_file 500000\n",
    }
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    assert available_bytes(tmp_path, tmp_path / "meminfo") == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path, tmp_path / "meminfo") == 4_096_000


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
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Pool(LAYOUT, 2).close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not list(Path("/dev/shm").glob("*stateroom*"))

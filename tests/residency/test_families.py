"""Families beyond the 40 published configs: their bytes by hand."""

from __future__ import annotations

from typing import Any

from stateroom.residency.families import FAMILIES
from stateroom.residency.layer_lists import SPELLINGS
from stateroom.residency.model import read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.rank_state import RankState, StateOptions, rank_state


def _state(config: dict[str, Any], tp_size: int = 1) -> RankState:
    return rank_state(read_model(config), Parallel(tp_size=tp_size), StateOptions(model_dtype="bfloat16"))


def test_no_two_families_claim_one_model_type_and_every_layer_field_is_known() -> None:
    claimed = [name for family in FAMILIES for name in family.model_types]
    assert len(claimed) == len(set(claimed))
    assert all(name == name.lower() for name in claimed)
    fields = {field for family in FAMILIES if isinstance(family.layers, tuple) for field in family.layers}
    assert fields == set(SPELLINGS)


def test_kimi_k3_is_kimi_linear_inside_a_wrapper() -> None:
    """93 layers, MLA at 4, 8, ... 92 and 93, counted from 1; shape of the heads chosen for the test."""
    full = [*range(4, 93, 4), 93]
    inner = {
        "model_type": "kimi_linear", "num_hidden_layers": 93, "hidden_size": 7168, "num_attention_heads": 64,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "linear_attn_config": {
            "num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "full_attn_layers": full,
            "kda_layers": [layer for layer in range(1, 94) if layer not in full],
        },
    }  # fmt: skip
    state = _state({"model_type": "kimi_k3", "text_config": inner}, tp_size=8)
    assert (state.recurrent_layers_count, state.attention_layers_count) == (69, 24)
    assert state.conv_bytes == 69 * 3 * 8 * 128 * 3 * 2
    assert state.recurrent_bytes == 69 * 8 * 128 * 128 * 4  # KDA keeps float32
    assert state.kv_token_bytes == 24 * (512 + 64) * 2  # the latent is whole on every rank


def test_plamo_2_has_no_b_and_c_in_its_conv() -> None:
    config = {
        "model_type": "plamo2", "hidden_size": 2048, "hidden_size_per_head": 128, "mamba_d_conv": 4,
        "mamba_d_state": 64, "mamba_enabled": True, "mamba_num_heads": 32, "mamba_step": 2,
        "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 1,
    }  # fmt: skip
    state = _state(config, tp_size=2)
    assert (state.recurrent_layers_count, state.attention_layers_count) == (8, 8)
    assert state.conv_bytes == 8 * 16 * 128 * 3 * 2
    assert state.recurrent_bytes == 8 * 16 * 128 * 64 * 2
    assert state.kv_token_bytes == 8 * 2 * 128 * 2
    assert _state(config | {"mamba_enabled": False}).recurrent_layers_count == 0


def test_zamba2_shares_weights_between_its_attention_blocks_and_not_their_kv() -> None:
    config = {
        "model_type": "zamba2", "hidden_size": 2560, "num_hidden_layers": 6, "num_attention_heads": 32,
        "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 80,
        "layers_block_type": ["mamba", "mamba", "hybrid", "mamba", "mamba", "hybrid"], "num_mem_blocks": 2,
    }  # fmt: skip
    state = _state(config)
    assert (state.recurrent_layers_count, state.attention_layers_count) == (6, 2)
    assert state.conv_bytes == 6 * (5120 + 2 * 64) * 3 * 2
    assert state.recurrent_bytes == 6 * 80 * 64 * 64 * 2
    assert state.kv_token_bytes == 2 * 2 * 32 * 160 * 2  # heads of 2 x hidden / 32
    by_index = {k: v for k, v in config.items() if k != "layers_block_type"} | {"hybrid_layer_ids": [2, 5]}
    assert _state(by_index).layout == state.layout


def test_codestral_mamba_by_hand() -> None:
    config = {
        "model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64,
        "n_groups": 8, "state_size": 128, "conv_kernel": 4, "expand": 2,
    }  # fmt: skip
    state = _state(config, tp_size=2)
    assert state.conv_bytes == 64 * (4096 + 2 * 4 * 128) * 3 * 2
    assert state.recurrent_bytes == 64 * 64 * 64 * 128 * 2
    assert (state.attention_layers_count, state.kv_token_bytes) == (0, 0)


def test_rwkv7_counts_heads_by_their_width() -> None:
    """Published configs state a num_heads that the model does not use."""
    config = {
        "model_type": "rwkv7",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "head_dim": 64,
        "num_heads": 32,
    }
    state = _state(config, tp_size=2)
    assert state.conv_bytes == 12 * 2 * 768 * 2  # two token shifts, whole on every rank
    assert state.recurrent_bytes == 12 * 6 * 64 * 64 * 4
    assert state.ssm_dtype.source == "family default of RWKV-7"

"""transformers' own cache objects, allocated by small random models, are as large as the formulas say.

It keeps K conv columns where serving engines keep K - 1: one column of every conv is the only difference.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from stateroom.residency.model import read_model  # noqa: E402
from stateroom.residency.parallel import Parallel  # noqa: E402
from stateroom.residency.rank_state import StateOptions, rank_state  # noqa: E402

TOKENS = 8
BASE: dict[str, Any] = {
    "vocab_size": 64, "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MOE = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
GDN = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
}  # fmt: skip
MAMBA_D = {"mamba_n_heads": 16, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2}
MLA = {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "num_local_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
}  # fmt: skip
TWO_KINDS = ["linear_attention", "full_attention"] * 2

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_next": {**BASE, **GDN, **MOE, "head_dim": 16, "full_attention_interval": 2, "shared_expert_intermediate_size": 16},
    "qwen3_5_text": {**BASE, **GDN, "head_dim": 16, "full_attention_interval": 2},
    "qwen3_5_moe_text": {**BASE, **GDN, **MOE, "head_dim": 16, "full_attention_interval": 4, "shared_expert_intermediate_size": 16},
    "nemotron_h": {
        **BASE, "hybrid_override_pattern": "M*-M", "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2,
        "ssm_state_size": 16, "conv_kernel": 4, "head_dim": 16,
    },
    "falcon_h1": {
        **BASE, "mamba_d_ssm": 96, "mamba_n_heads": 12, "mamba_d_head": 8, "mamba_n_groups": 1,
        "mamba_d_state": 16, "mamba_d_conv": 4, "head_dim": 16,
    },
    "bamba": {**BASE, **MAMBA_D, "mamba_n_groups": 2, "attn_layer_indices": [1]},
    "granitemoehybrid": {
        **BASE, **MAMBA_D, "mamba_n_groups": 1, "layer_types": ["mamba", "attention", "mamba", "mamba"],
        "num_local_experts": 0, "shared_intermediate_size": 32,
    },
    "zamba2": {
        **BASE, "n_mamba_heads": 16, "mamba_headdim": 8, "mamba_ngroups": 2, "mamba_d_state": 16, "mamba_d_conv": 4,
        "mamba_expand": 2, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
    },
    "mamba2": {
        "vocab_size": 64, "num_hidden_layers": 2, "hidden_size": 64, "num_heads": 16, "head_dim": 8, "n_groups": 2,
        "state_size": 16, "conv_kernel": 4, "expand": 2,
    },
    "mamba": {
        "vocab_size": 64, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "state_size": 8,
        "conv_kernel": 4, "expand": 2,
    },
    "falcon_mamba": {
        "vocab_size": 64, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "state_size": 8,
        "conv_kernel": 4, "expand": 2,
    },
    "jamba": {
        **BASE, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_conv": 4, "mamba_d_state": 8,
        "mamba_dt_rank": 4, "mamba_expand": 2, "num_experts": 2, "num_experts_per_tok": 1,
    },
    "zamba": {
        **BASE, "num_key_value_heads": 4, "layers_block_type": ["mamba", "hybrid"] * 2, "mamba_d_conv": 4,
        "mamba_d_state": 8, "mamba_dt_rank": 4, "mamba_expand": 2, "n_mamba_heads": 2,
    },
    "kimi_linear": {
        **BASE, **MLA,
        "linear_attn_config": {
            "num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 4, "full_attn_layers": [2, 4], "kda_layers": [1, 3],
        },
    },
    "bailing_hybrid": {**BASE, **MLA, "head_dim": 8, "layer_group_size": 2, "short_conv_kernel_size": 4},
    "minimax": {
        **BASE, "head_dim": 16, "layer_types": TWO_KINDS, "num_local_experts": 2, "num_experts_per_tok": 1,
    },
    "lfm2": {**BASE, "conv_L_cache": 3, "full_attn_idxs": [1]},
    "lfm2_moe": {**BASE, **MOE, "conv_L_cache": 3, "layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1},
    "lfm3": {**BASE, "conv_L_cache": 7, "head_dim": 16, "layer_types": ["conv", "full_attention"] * 2},
    "olmo_hybrid": {**BASE, **GDN, "layer_types": TWO_KINDS},
}  # fmt: skip


def _cache(model_type: str, fields: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **fields)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        out = model(torch.arange(1, TOKENS + 1)[None], use_cache=True)
    return out.past_key_values if getattr(out, "past_key_values", None) is not None else out.cache_params


def _tensors(layer: Any, name: str) -> list[Any]:
    return [state for state in (getattr(layer, name, None) or {}).values() if state is not None]


def _allocated(cache: Any) -> tuple[int, int, int, int]:
    """Elements of conv states, conv channels, recurrent states and KV in a cache of one sequence."""
    conv = channels = recurrent = kv = 0
    for layer in cache.layers:
        for state in _tensors(layer, "conv_states"):
            conv += state.numel()
            channels += state.numel() // state.shape[-1]
        recurrent += sum(state.numel() for state in _tensors(layer, "recurrent_states"))
        keys = getattr(layer, "keys", None)
        kv += 0 if keys is None else keys.numel() + layer.values.numel()
    for state in getattr(cache, "linear_cache", []):  # MiniMax keeps its own list
        recurrent += state.numel() if torch.is_tensor(state) else 0
    return conv, channels, recurrent, kv


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", CONFIGS)
def test_the_cache_that_transformers_allocates(model_type: str) -> None:
    fields = CONFIGS[model_type]
    model = read_model({"model_type": model_type, **fields})
    state = rank_state(model, Parallel(), StateOptions(ssm_dtype="fp32", conv_dtype="fp32", kv_dtype="fp32"))
    conv, channels, recurrent, kv = _allocated(_cache(model_type, fields))
    assert state.conv_bytes == 4 * (conv - channels)  # K - 1 columns of K
    assert state.recurrent_bytes == 4 * recurrent
    if model_type not in ("kimi_linear", "bailing_hybrid"):  # it caches MLA decompressed, engines the latent
        assert state.kv_token_bytes * TOKENS == 4 * kv
    assert state.recurrent_bytes + state.conv_bytes > 0


@pytest.mark.filterwarnings("ignore")
def test_recurrentgemma_keeps_its_state_in_its_modules() -> None:
    fields = {**BASE, "lru_width": 64, "conv1d_width": 4, "attention_window_size": 16}
    block_types = ["recurrent", "recurrent", "attention"]
    config = transformers.AutoConfig.for_model("recurrent_gemma", **fields, block_types=block_types)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        model(torch.arange(1, TOKENS + 1)[None], use_cache=True)
    modules = [module for module in model.modules() if hasattr(module, "conv1d_state")]
    conv_bytes = sum(module.conv1d_state.nbytes for module in modules)
    recurrent = [module.rg_lru.recurrent_states for module in modules]
    shape = read_model({"model_type": "recurrent_gemma", **fields, "_block_types": block_types})
    state = rank_state(shape, Parallel(), StateOptions(model_dtype="bf16"))
    assert state.recurrent_layers_count == len(modules) == 3
    assert state.conv_bytes == conv_bytes
    assert state.ssm_dtype.dtype == "float32"
    assert {tensor.dtype for tensor in recurrent} == {torch.float32}
    assert state.recurrent_bytes == sum(tensor.nbytes for tensor in recurrent)


def test_every_family_that_transformers_has_is_compared() -> None:
    """RWKV-7 and PLaMo-2 are no part of transformers; the rest of the table is compared above."""
    from stateroom.residency.families import FAMILIES

    compared = set(CONFIGS) | {"recurrent_gemma", "rwkv7", "plamo2", "llama"}
    assert [family.name for family in FAMILIES if not compared & set(family.model_types)] == []

"""The table. Adding a family is one entry here; a new mechanism is one reader in mixers.py.

Field names are those of the published configs and of transformers 5.24; the byte counts that follow
were checked against two serving engines' own code and against transformers' cache objects.
"""

from __future__ import annotations

from stateroom.residency.attention import grouped_query, latent
from stateroom.residency.families import mixers
from stateroom.residency.families.family import Family
from stateroom.residency.layer_kinds import ATTENTION, BOTH, RECURRENT

__all__ = ["FAMILIES"]

FAMILIES: tuple[Family, ...] = (
    Family(
        name="Qwen3-Next and Qwen3.5",
        mechanism="gated delta net",
        model_types=(
            "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"
        ),
        markers=("linear_num_value_heads", "linear_value_head_dim", "linear_conv_kernel_dim"),
        tensors=mixers.gated_delta_net,
        layers=("layer_types", "full_attention_interval"),
    ),
    Family(
        name="OLMo Hybrid",
        mechanism="gated delta net",
        model_types=("olmo_hybrid",),
        tensors=mixers.gated_delta_net,
        layers=("layer_types",),
        kv=grouped_query(derived_factor=1, plain_heads=True),
    ),
    Family(
        name="Nemotron-H",
        mechanism="Mamba-2",
        model_types=("nemotron_h",),
        markers=("mamba_num_heads", "mamba_head_dim", "ssm_state_size"),
        # heads x head dim is the inner width; expand x hidden_size is another number in some of them
        tensors=mixers.mamba2(
            "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"
        ),
        layers=("layers_block_type", "layer_types", "hybrid_override_pattern"),
        kv=grouped_query(head_dim=("head_dim", "attention_head_dim")),
    ),
    Family(
        name="Falcon-H1",
        mechanism="Mamba-2",
        model_types=("falcon_h1",),
        markers=("mamba_d_ssm", "mamba_n_heads"),
        tensors=mixers.mamba2(
            "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
            inner=("mamba_d_ssm", "mamba_expand"),
        ),
        layers=BOTH,  # every layer has attention and a mixer side by side
    ),
    Family(
        name="Granite 4 H and Bamba",
        mechanism="Mamba-2",
        model_types=("granitemoehybrid", "bamba"),
        tensors=mixers.mamba2(
            "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
            inner=("mamba_expand",),
        ),
        layers=("layer_types", "layers_block_type", "attn_layer_indices"),
        kv=grouped_query(derived_factor=1),
    ),
    Family(
        name="Zamba2",
        mechanism="Mamba-2",
        model_types=("zamba2",),
        tensors=mixers.mamba2(
            "n_mamba_heads", "mamba_headdim", "mamba_ngroups", "mamba_d_state", "mamba_d_conv",
            inner=("mamba_expand",),
        ),
        layers=("layers_block_type", "layer_types", "hybrid_layer_ids"),
        # weights of the attention blocks are shared, their KV is not; they see hidden twice (concatenated)
        kv=grouped_query(head_dim=("attention_head_dim",), derived_factor=2, plain_heads=True),
    ),
    Family(
        name="Mamba-2 and Codestral Mamba",
        mechanism="Mamba-2",
        model_types=("mamba2",),
        tensors=mixers.mamba2(
            "num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", inner=("expand",)
        ),
        layers=RECURRENT,
    ),
    Family(
        name="PLaMo-2",
        mechanism="Mamba-2 without B and C in the conv",
        model_types=("plamo2",),
        tensors=mixers.mamba2(
            "mamba_num_heads", "hidden_size_per_head", None, "mamba_d_state", "mamba_d_conv"
        ),
        layers=("layer_types", "mamba_step"),
        kv=grouped_query(head_dim=("hidden_size_per_head",), window="attention_window_size"),
    ),
    Family(
        name="Mamba",
        mechanism="Mamba-1",
        model_types=("mamba",),
        tensors=mixers.mamba1("intermediate_size", "state_size", "conv_kernel", "expand"),
        layers=RECURRENT,
    ),
    Family(
        name="Falcon-Mamba",
        mechanism="Mamba-1",
        model_types=("falcon_mamba",),
        tensors=mixers.mamba1("intermediate_size", "state_size", "conv_kernel", None),
        layers=RECURRENT,
    ),
    Family(
        name="Jamba",
        mechanism="Mamba-1",
        model_types=("jamba",),
        tensors=mixers.mamba1("", "mamba_d_state", "mamba_d_conv", "mamba_expand"),
        layers=("attn_layer_period",),
        kv=grouped_query(derived_factor=1),
    ),
    Family(
        name="Zamba",
        mechanism="Mamba-1",
        model_types=("zamba",),
        tensors=mixers.mamba1("", "mamba_d_state", "mamba_d_conv", "mamba_expand"),
        layers=("layers_block_type", "layer_types"),
        kv=grouped_query(head_dim=("attention_head_dim",), derived_factor=2, plain_heads=True),
    ),
    Family(
        name="Kimi-Linear and Kimi-K3",
        mechanism="Kimi delta attention",
        model_types=("kimi_linear", "kimi_k3", "kimi_k3_text"),
        markers=("linear_attn_config",),
        tensors=mixers.in_section(
            "linear_attn_config",
            mixers.kimi_delta("num_heads", "head_dim", "short_conv_kernel_size"),
            mixers.kimi_delta("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"),
        ),
        layers=("layer_types", "linear_attn_config"),
        kv=latent,
        ssm_dtype="float32",
    ),
    Family(
        name="Ling 3",
        mechanism="Kimi delta attention",
        model_types=("bailing_hybrid",),
        tensors=mixers.kimi_delta("num_attention_heads", "head_dim", "short_conv_kernel_size"),
        layers=("layer_types", "layer_group_size"),
        kv=latent,
        ssm_dtype="float32",
    ),
    Family(
        name="MiniMax",
        mechanism="lightning attention",
        model_types=("minimax", "minimax_text_01", "minimaxtext01", "minimax_m1"),
        tensors=mixers.lightning,
        layers=("layer_types", "attn_type_list"),
    ),
    Family(
        name="LFM2",
        mechanism="short convolution",
        model_types=("lfm2", "lfm2_moe", "lfm3"),
        markers=("conv_L_cache",),
        tensors=mixers.short_conv,
        layers=("layer_types", "full_attn_idxs"),
        kv=grouped_query(derived_factor=1),
    ),
    Family(
        name="RecurrentGemma",
        mechanism="RG-LRU",
        model_types=("recurrent_gemma",),
        tensors=mixers.rg_lru,
        layers=("layers_block_type", "_block_types", "block_types"),
        kv=grouped_query(window="attention_window_size", derived_factor=1, plain_heads=True),
        ssm_dtype="float32",
        attention_is_windowed=True,  # its word "attention" is a local window
    ),
    Family(
        name="RWKV-7",
        mechanism="RWKV-7",
        model_types=("rwkv7",),
        tensors=mixers.rwkv7,
        layers=RECURRENT,
        ssm_dtype="float32",
    ),
    Family(
        name="attention only",
        mechanism="attention",
        model_types=(
            "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3", "gpt_oss",
            "olmo2", "granite", "granitemoe",
        ),
        tensors=lambda fields: (),
        layers=ATTENTION,
        kv=grouped_query(derived_factor=1, plain_heads=True),
    ),
)  # fmt: skip

"""A small twin of a real model's config: the same family, head counts and layer kinds, narrower heads.

Widths are divided, counts are kept, so TP divides the twin exactly as it divides the real model, and
a pool of as many rows fits in a laptop's memory. For demos and tests.
"""

from __future__ import annotations

from collections.abc import Mapping

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.config_file import TEXT_SECTIONS
from stateroom.residency.quantity import div_floor

__all__ = ["scaled_quota", "shrink"]

# Widths of everything, in all spellings of the families' table.
_WIDTHS = frozenset(
    {
        "hidden_size", "intermediate_size", "head_dim", "attention_head_dim", "head_size",
        "linear_key_head_dim", "linear_value_head_dim", "linear_head_dim", "hidden_size_per_head",
        "mamba_head_dim", "mamba_d_head", "mamba_headdim", "mamba_d_ssm", "mamba_d_state", "ssm_state_size",
        "state_size", "kv_lora_rank", "qk_rope_head_dim", "lru_width", "conv_dim", "moe_intermediate_size",
    }
)  # fmt: skip
_LAYER_LISTS = frozenset({"layer_types", "layers_block_type", "hybrid_override_pattern", "attn_type_list"})
_INDICES_FROM_0 = frozenset({"full_attn_idxs", "attn_layer_indices", "hybrid_layer_ids"})
_INDICES_FROM_1 = frozenset({"kda_layers", "full_attn_layers"})


def shrink(
    config: Mapping[str, object], factor: int = 8, layer_count: int | None = None
) -> dict[str, object]:
    """The twin: every width divided by `factor`, only the first `layer_count` layers if given.

    Nested sections are shrunk too. Errors: ConfigError for a width that the factor does not divide.
    """
    twin: dict[str, object] = {}
    for field, value in config.items():
        if isinstance(value, Mapping) and field in (*TEXT_SECTIONS, "linear_attn_config"):
            twin[field] = shrink(value, factor, layer_count)
        elif field in _WIDTHS and isinstance(value, int):
            twin[field] = _divided(field, value, factor)
        else:
            twin[field] = value if layer_count is None else _cut(field, value, layer_count)
    return twin


def _divided(field: str, width: int, factor: int) -> int:
    if width % factor:
        raise ConfigError(
            field, width, f"it does not divide by {factor}", f"use a factor that divides {width}"
        )
    return width // factor


def _cut(field: str, value: object, layer_count: int) -> object:
    if field == "num_hidden_layers":
        return layer_count
    if field in _LAYER_LISTS and isinstance(value, (list, str)):
        return value[:layer_count]
    if field in _INDICES_FROM_0 and isinstance(value, list):
        return [index for index in value if index < layer_count]
    if field in _INDICES_FROM_1 and isinstance(value, list):
        return [index for index in value if index <= layer_count]
    return value


def scaled_quota(quota_bytes: int, slot_bytes: int, twin_slot_bytes: int) -> int:
    """The quota at which the twin has exactly as many rows as the real model has at `quota_bytes`.

    floor(floor(Q * s / S) / s) = floor(Q / S), so nothing is lost to rounding.
    """
    return div_floor(quota_bytes * twin_slot_bytes, slot_bytes)

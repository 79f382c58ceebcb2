"""Attention KV of one token in one layer: grouped-query heads or a latent vector (MLA).

Needed for the `full_length` guarantee and for the headroom that plans report; a fault here is an
error of the KV answer only, state bytes are still given (section 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateroom.residency.config_fields import ConfigError, Fields

__all__ = ["AttentionKv", "KvReader", "grouped_query", "latent"]


@dataclass(frozen=True, slots=True)
class AttentionKv:
    """KV of one attention layer. `heads` are KV heads of `width` elements a token (K and V together).

    `query_heads` is None where the config does not state it; a latent has one replicated head. A
    windowed layer keeps at most `window_tokens`.
    """

    heads: int
    width: int
    replicated: bool
    query_heads: int | None = None
    window_tokens: int | None = None

    def token_elements(self, tp_size: int) -> int:
        """Elements a token a layer on one rank; fewer KV heads than ranks are replicated.

        Errors: ConfigError with field and both numbers where heads do not divide.
        """
        if self.replicated:
            return self.heads * self.width
        if self.query_heads is not None and self.query_heads % tp_size:
            raise _indivisible("num_attention_heads", self.query_heads, tp_size)
        larger, smaller = max(self.heads, tp_size), min(self.heads, tp_size)
        if larger % smaller:
            raise _indivisible("num_key_value_heads", self.heads, tp_size)
        return max(1, self.heads // tp_size) * self.width


KvReader = Callable[[Fields], AttentionKv]


def _indivisible(field: str, heads: int, tp_size: int) -> ConfigError:
    return ConfigError(
        field,
        heads,
        f"the attention KV does not divide by the tensor-parallel size {tp_size}",
        f"choose a --tp that divides {heads}, or the guarantee `state`, which needs no KV",
    )


def grouped_query(
    head_dim: tuple[str, ...] = ("head_dim",),
    window: str = "sliding_window",
    derived_factor: int | None = None,
    plain_heads: bool = False,
) -> KvReader:
    """Keys and values of the KV heads.

    `derived_factor`: an absent head_dim is hidden_size x factor / query heads by the model's own rule;
    None where it is not, and the field must be there. `plain_heads`: an absent num_key_value_heads
    means one KV head a query head; elsewhere it must be there too.
    """

    def read(fields: Fields) -> AttentionKv:
        query_heads = fields.optional_integer("num_attention_heads")
        plain = plain_heads and not fields.has("num_key_value_heads")
        kv_heads = fields.integer("num_attention_heads" if plain else "num_key_value_heads")
        stated = fields.first_of(*head_dim)
        if fields.has(stated) or derived_factor is None:
            dim = fields.integer(stated)
        else:
            dim = _derived_head_dim(fields, derived_factor)
        return AttentionKv(kv_heads, 2 * dim, False, query_heads, fields.optional_integer(window))

    return read


def _derived_head_dim(fields: Fields, factor: int) -> int:
    width, heads = fields.integer("hidden_size") * factor, fields.integer("num_attention_heads")
    if width % heads:
        raise ConfigError(
            "num_attention_heads", heads, f"it does not divide the attention width {width}", "state head_dim"
        )
    return width // heads


def latent(fields: Fields) -> AttentionKv:
    """Multi-head latent attention: one compressed vector and one rotary key, whole on every rank."""
    width = fields.integer("kv_lora_rank") + fields.integer("qk_rope_head_dim")
    return AttentionKv(1, width, True, fields.optional_integer("num_attention_heads"))

"""What each kind of recurrent layer keeps of a sequence: one reader a mechanism.

A conv over K taps needs its last K-1 inputs, so a window has K-1 columns (engines agree on that;
transformers keeps K). Shapes are (what TP divides, ...), row-major.
"""

from __future__ import annotations

from stateroom.residency.config_fields import ConfigError, Fields
from stateroom.residency.families.family import TensorReader
from stateroom.residency.state_tensors import (
    Extent,
    Kind,
    Part,
    Split,
    StateTensor,
    replicated,
    split_evenly,
)

__all__ = [
    "gated_delta_net",
    "in_section",
    "kimi_delta",
    "lightning",
    "mamba1",
    "mamba2",
    "rg_lru",
    "rwkv7",
    "short_conv",
]


def _window(channels: Extent, kernel_field: str, kernel: int) -> StateTensor:
    return StateTensor("conv", Kind.CONV_WINDOW, (channels, replicated(kernel_field, kernel - 1)))


def _recurrent(*shape: Extent) -> StateTensor:
    return StateTensor("recurrent", Kind.RECURRENT, shape)


def gated_delta_net(fields: Fields) -> tuple[StateTensor, ...]:
    """Qwen: a conv over values, queries and keys; a (value heads, key dim, value dim) matrix state."""
    values, keys = fields.integer("linear_num_value_heads"), fields.integer("linear_num_key_heads")
    value_dim, key_dim = fields.integer("linear_value_head_dim"), fields.integer("linear_key_head_dim")
    channels = Extent(
        (
            Part("linear_num_value_heads", values, value_dim),
            Part("linear_num_key_heads", keys, 2 * key_dim),  # queries and keys
        )
    )
    return (
        _window(channels, "linear_conv_kernel_dim", fields.integer("linear_conv_kernel_dim", least=2)),
        _recurrent(
            split_evenly("linear_num_value_heads", values),
            replicated("linear_key_head_dim", key_dim),
            replicated("linear_value_head_dim", value_dim),
        ),
    )


def mamba1(width: str, state: str, kernel: str, expand: str | None) -> TensorReader:
    """A conv and a state over `width` channels; where `width` is absent it is expand x hidden_size.

    Falcon-Mamba states expand 16 beside the width 8192 that the model has, so it gives no `expand`
    here and must state its width.
    """

    def read(fields: Fields) -> tuple[StateTensor, ...]:
        if expand is None or fields.has(width):
            name, channels = width, fields.integer(width)
        else:
            name = f"{expand} x hidden_size"
            channels = fields.integer(expand) * fields.integer("hidden_size")
        return (
            _window(split_evenly(name, channels), kernel, fields.integer(kernel, least=2)),
            _recurrent(split_evenly(name, channels), replicated(state, fields.integer(state))),
        )

    return read


def mamba2(
    heads: str, head_dim: str, groups: str | None, state: str, kernel: str, inner: tuple[str, ...] = ()
) -> TensorReader:
    """A conv over x, B and C; a (heads, head dim, state) matrix state. B and C have `groups` groups.

    `inner` names what the config says about the inner width, to be compared with heads x head dim:
    one field, or the factor of hidden_size. A head dim that is absent or "auto" is inner / heads.
    `groups` None: no B and C in the conv (PLaMo-2).
    """

    def read(fields: Fields) -> tuple[StateTensor, ...]:
        heads_count = fields.integer(heads)
        dim = _head_dim(fields, heads, head_dim, inner)
        state_size = fields.integer(state)
        parts = [Part(heads, heads_count, dim)]
        if groups is not None:
            parts.append(Part(groups, fields.integer(groups), 2 * state_size, Split.EVENLY_OR_ONE))
        return (
            _window(Extent(tuple(parts)), kernel, fields.integer(kernel, least=2)),
            _recurrent(
                split_evenly(heads, heads_count), replicated(head_dim, dim), replicated(state, state_size)
            ),
        )

    return read


def _head_dim(fields: Fields, heads: str, head_dim: str, inner: tuple[str, ...]) -> int:
    heads_count = fields.integer(heads)
    stated = fields.has(head_dim) and fields.raw(head_dim) != "auto"
    name = next((field for field in inner if fields.has(field)), None)
    if name is None:
        return fields.integer(head_dim)
    width = fields.integer(name) * (fields.integer("hidden_size") if "expand" in name else 1)
    if (fields.integer(head_dim) * heads_count if stated else width // heads_count * heads_count) != width:
        raise ConfigError(
            fields.name_of(heads),
            heads_count,
            f"with {head_dim} {fields.raw(head_dim) if stated else 'unstated'} it does not make up the inner width "
            f"{width} that {name} states",
            "correct the one that is wrong",
        )
    return width // heads_count


def kimi_delta(heads: str, head_dim: str, kernel: str) -> TensorReader:
    """KDA: convs over queries, keys and values, and a (heads, dim, dim) matrix state."""

    def read(fields: Fields) -> tuple[StateTensor, ...]:
        count, dim = fields.integer(heads), fields.integer(head_dim)
        name = fields.name_of(heads)
        return (
            _window(split_evenly(name, count, 3 * dim), kernel, fields.integer(kernel, least=2)),
            _recurrent(split_evenly(name, count), replicated(head_dim, dim), replicated(head_dim, dim)),
        )

    return read


def in_section(section: str, inside: TensorReader, flat: TensorReader) -> TensorReader:
    """Kimi: published configs nest the fields, converted ones have them flat under other names."""

    def read(fields: Fields) -> tuple[StateTensor, ...]:
        return inside(fields.section(section)) if fields.has(section) else flat(fields)

    return read


def lightning(fields: Fields) -> tuple[StateTensor, ...]:
    """MiniMax: no conv; a (heads, dim, dim) state of all query heads."""
    heads = fields.integer("num_attention_heads")
    dim = fields.integer("head_dim")  # hidden_size / heads is another number in MiniMax-Text-01
    return (
        _recurrent(
            split_evenly("num_attention_heads", heads),
            replicated("head_dim", dim),
            replicated("head_dim", dim),
        ),
    )


def short_conv(fields: Fields) -> tuple[StateTensor, ...]:
    """LFM2: a conv over conv_dim (else hidden_size) channels, and no recurrent state at all."""
    name = "conv_dim" if fields.has("conv_dim") else "hidden_size"
    channels = split_evenly(name, fields.integer(name))
    return (_window(channels, "conv_L_cache", fields.integer("conv_L_cache", least=2)),)


def rg_lru(fields: Fields) -> tuple[StateTensor, ...]:
    """RecurrentGemma: a conv and one number a channel of lru_width (else hidden_size)."""
    name = "lru_width" if fields.has("lru_width") else "hidden_size"
    channels = split_evenly(name, fields.integer(name))
    return (
        _window(channels, "conv1d_width", fields.integer("conv1d_width", least=2)),
        _recurrent(channels),
    )


def rwkv7(fields: Fields) -> tuple[StateTensor, ...]:
    """RWKV-7: the last input of time mix and of channel mix, whole on every rank, and (heads, dim, dim).

    Two shifts are the architecture, not a default: a config may say otherwise in token_shift_count.
    """
    hidden = fields.integer("hidden_size")
    size_field = fields.first_of("head_size", "head_dim")
    dim = fields.integer(size_field)
    if hidden % dim:
        raise ConfigError(
            size_field, dim, f"it does not divide hidden_size {hidden}", "correct one of the two"
        )
    shifts = fields.optional_integer("token_shift_count") or 2
    return (
        StateTensor(
            "conv", Kind.CONV, (replicated("token_shift_count", shifts), replicated("hidden_size", hidden))
        ),
        _recurrent(
            split_evenly(f"hidden_size / {size_field}", hidden // dim),
            replicated(size_field, dim),
            replicated(size_field, dim),
        ),
    )

"""Every spelling of "which layer is which" in published configs, in one table.

Each reader gives one kind a layer. Where a config has several spellings the first in the table
counts (an explicit list before a rule), and the caller is told if another one disagrees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from stateroom.residency.config_fields import ConfigError, Fields
from stateroom.residency.layer_kinds import ATTENTION, BOTH, LETTER_KINDS, RECURRENT, WORD_KINDS, LayerKind

__all__ = ["SPELLINGS", "read_layers"]

Kinds = tuple[LayerKind, ...]
_Reader = Callable[[Fields, int], Kinds]


def read_layers(fields: Fields, accepted: tuple[str, ...], count: int) -> tuple[Kinds, tuple[str, ...]]:
    """Kinds of all `count` layers, and a warning for each spelling that disagrees with the one used.

    Errors: ConfigError for no spelling at all, a list of another length, an unknown word, an index
    that no layer has (scenario S25).
    """
    present = [name for name in SPELLINGS if name in accepted and fields.has(name)]
    if not present:
        raise ConfigError(
            fields.name_of(accepted[0]),
            None,
            "nothing says which layers are recurrent",
            f"add {' or '.join(accepted)} as the model's own config.json has it",
        )
    first, *others = ((name, _checked(fields, name, count)) for name in present)
    warnings = tuple(
        f"{fields.name_of(name)} and {fields.name_of(first[0])} name different layers; {first[0]} is used"
        for name, kinds in others
        if kinds != first[1]
    )
    return first[1], warnings


def _checked(fields: Fields, name: str, count: int) -> Kinds:
    kinds = SPELLINGS[name](fields, count)
    if len(kinds) != count:
        raise ConfigError(
            fields.name_of(name),
            len(kinds),
            f"it has {len(kinds)} entries and num_hidden_layers is {count}",
            "correct the one that is wrong",
        )
    return kinds


def _words(field: str) -> _Reader:
    def read(fields: Fields, count: int) -> Kinds:
        words = fields.sequence(field)
        unknown = sorted({str(word) for word in words if word not in WORD_KINDS})
        if unknown:
            raise ConfigError(
                fields.name_of(field),
                ", ".join(unknown),
                "no such layer kind is known",
                f"write each layer as one of {', '.join(WORD_KINDS)}",
            )
        return tuple(WORD_KINDS[str(word)] for word in words)

    return read


def _word_cycle(field: str) -> _Reader:
    """A short list that repeats over the layers (RecurrentGemma)."""

    def read(fields: Fields, count: int) -> Kinds:
        cycle = _words(field)(fields, count)
        if not cycle:
            raise ConfigError(fields.name_of(field), [], "the cycle is empty", "name at least one block")
        return tuple(cycle[layer % len(cycle)] for layer in range(count))

    return read


def _pattern(field: str) -> _Reader:
    def read(fields: Fields, count: int) -> Kinds:
        letters = fields.text(field)
        unknown = sorted({letter for letter in letters if letter not in LETTER_KINDS})
        if unknown:
            raise ConfigError(
                fields.name_of(field),
                "".join(unknown),
                "no such layer letter is known",
                f"write each layer as one of {' '.join(LETTER_KINDS)}",
            )
        return tuple(LETTER_KINDS[letter] for letter in letters)

    return read


def _attention_at(field: str, kind: LayerKind = ATTENTION) -> _Reader:
    """Indices, from 0, of the layers of this kind; all others are recurrent."""

    def read(fields: Fields, count: int) -> Kinds:
        indices = fields.integers(field)
        _no_index_beyond(fields.name_of(field), indices, count - 1)
        return tuple(kind if layer in indices else RECURRENT for layer in range(count))

    return read


def _flags(field: str) -> _Reader:
    """0 for a linear layer, 1 for softmax attention (MiniMax)."""

    def read(fields: Fields, count: int) -> Kinds:
        flags = fields.integers(field)
        for flag in flags:
            if flag > 1:
                raise ConfigError(
                    fields.name_of(field), flag, "0 is linear and 1 is attention", "correct that entry"
                )
        return tuple(ATTENTION if flag else RECURRENT for flag in flags)

    return read


def _every(field: str) -> _Reader:
    """The last layer of every `field` layers has attention (Qwen, Ling)."""

    def read(fields: Fields, count: int) -> Kinds:
        interval = fields.integer(field)
        return tuple(RECURRENT if (layer + 1) % interval else ATTENTION for layer in range(count))

    return read


def _period_and_offset(fields: Fields, count: int) -> Kinds:
    """Jamba: attention where layer % period == offset."""
    period, offset = fields.integer("attn_layer_period"), fields.integer("attn_layer_offset", least=0)
    if offset >= period:
        raise ConfigError(
            "attn_layer_offset",
            offset,
            f"attn_layer_period is {period}, so no layer has attention",
            "lower it",
        )
    return tuple(ATTENTION if layer % period == offset else RECURRENT for layer in range(count))


def _one_based_lists(fields: Fields, count: int) -> Kinds:
    """Kimi: two lists of layer numbers that count from 1; together they name every layer once."""
    section = fields.section("linear_attn_config")
    linear, full = section.integers("kda_layers", least=1), section.integers("full_attn_layers", least=1)
    _no_index_beyond(section.name_of("kda_layers"), linear, count)
    _no_index_beyond(section.name_of("full_attn_layers"), full, count)
    if sorted(linear + full) != list(range(1, count + 1)):
        raise ConfigError(
            section.name_of("kda_layers"),
            len(linear),
            f"with the {len(full)} of full_attn_layers it does not name each of the {count} layers once",
            "correct the two lists; they count from 1",
        )
    return tuple(RECURRENT if layer + 1 in linear else ATTENTION for layer in range(count))


def _mamba_step(fields: Fields, count: int) -> Kinds:
    """PLaMo-2: attention in the middle of every `mamba_step` layers; the last layer of a short model."""
    if fields.has("mamba_enabled") and fields.raw("mamba_enabled") is False:
        return (ATTENTION,) * count
    step = fields.integer("mamba_step", least=2)
    if count <= step // 2:
        return tuple(RECURRENT if layer != count - 1 else ATTENTION for layer in range(count))
    return tuple(RECURRENT if layer % step != step // 2 else ATTENTION for layer in range(count))


def _no_index_beyond(name: str, indices: tuple[int, ...], last: int) -> None:
    beyond = [index for index in indices if index > last]
    if beyond:
        raise ConfigError(name, beyond[0], f"the last layer is {last}", "correct that entry")


# In the order in which they count.
SPELLINGS: Mapping[str, _Reader] = MappingProxyType(
    {
        "layers_block_type": _words("layers_block_type"),
        "layer_types": _words("layer_types"),
        "hybrid_override_pattern": _pattern("hybrid_override_pattern"),
        "linear_attn_config": _one_based_lists,
        "attn_type_list": _flags("attn_type_list"),
        "full_attn_idxs": _attention_at("full_attn_idxs"),
        "attn_layer_indices": _attention_at("attn_layer_indices"),
        "hybrid_layer_ids": _attention_at("hybrid_layer_ids", BOTH),
        "attn_layer_period": _period_and_offset,
        "full_attention_interval": _every("full_attention_interval"),
        "layer_group_size": _every("layer_group_size"),
        "mamba_step": _mamba_step,
        "_block_types": _word_cycle("_block_types"),
        "block_types": _word_cycle("block_types"),
    }
)

"""What a decoder layer holds for a sequence: a recurrent state, attention KV, both, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

__all__ = [
    "ATTENTION",
    "BOTH",
    "LETTER_KINDS",
    "NOTHING",
    "RECURRENT",
    "WINDOW",
    "WORD_KINDS",
    "KvKind",
    "LayerKind",
]


class KvKind(Enum):
    """How a layer's KV grows."""

    NONE = auto()
    FULL = auto()  # with every token
    WINDOW = auto()  # with every token up to the sliding window


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One layer: `recurrent` where it pins a state, `kv` how its attention KV grows."""

    recurrent: bool
    kv: KvKind


RECURRENT = LayerKind(True, KvKind.NONE)
ATTENTION = LayerKind(False, KvKind.FULL)
WINDOW = LayerKind(False, KvKind.WINDOW)
BOTH = LayerKind(True, KvKind.FULL)
NOTHING = LayerKind(False, KvKind.NONE)

# Every word that published layer lists use. A word that is not here is an error (scenario S25): a
# recurrent layer that is taken for anything else is memory nobody planned.
WORD_KINDS: Mapping[str, LayerKind] = MappingProxyType(
    {
        "linear_attention": RECURRENT,
        "mamba": RECURRENT,
        "mamba2": RECURRENT,
        "recurrent": RECURRENT,
        "conv": RECURRENT,
        "short_conv": RECURRENT,
        "kda": RECURRENT,
        "attention": ATTENTION,
        "full_attention": ATTENTION,
        "sliding_attention": WINDOW,
        "hybrid": BOTH,
        "mlp": NOTHING,
        "moe": NOTHING,
    }
)
# Nemotron-H's pattern string.
LETTER_KINDS: Mapping[str, LayerKind] = MappingProxyType(
    {"M": RECURRENT, "*": ATTENTION, "-": NOTHING, "E": NOTHING}
)

"""What one recurrent layer keeps of a sequence, declared: which dimension is divided by TP, and how.

A family lists its tensors once; what a rank holds follows from the list, so that every rule of
division (section 5, scenario S11) stands in one place: here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from stateroom.residency.config_fields import ConfigError

__all__ = ["Extent", "Kind", "Part", "Split", "StateTensor", "replicated", "split_evenly"]


class Split(Enum):
    """How tensor parallelism divides a part."""

    EVENLY = auto()  # must divide, else a config error
    EVENLY_OR_ONE = auto()  # a count of 1 is kept whole on every rank (groups of B and C in Mamba-2)
    REPLICATED = auto()  # every rank keeps all of it


class Kind(Enum):
    """Which dtype a tensor follows, and whether draft tokens widen it."""

    CONV_WINDOW = auto()  # conv dtype; the last dimension grows by the draft tokens (scenario S14)
    CONV = auto()  # conv dtype; fixed
    RECURRENT = auto()  # SSM dtype


@dataclass(frozen=True, slots=True)
class Part:
    """`count` units of `width` elements; `field` is the config field that states the count."""

    field: str
    count: int
    width: int = 1
    split: Split = Split.EVENLY

    def elements(self, tp_size: int) -> int:
        """Elements on one rank; ConfigError with the field and both numbers if it does not divide."""
        if self.split is Split.REPLICATED or (self.split is Split.EVENLY_OR_ONE and self.count == 1):
            return self.count * self.width
        if self.count % tp_size:
            raise ConfigError(
                self.field,
                self.count,
                f"it does not divide by the tensor-parallel size {tp_size}",
                f"choose a --tp that divides {self.count}",
            )
        return self.count // tp_size * self.width


@dataclass(frozen=True, slots=True)
class Extent:
    """One dimension of a state tensor, a sum of parts (conv channels: values, queries and keys)."""

    parts: tuple[Part, ...]

    def elements(self, tp_size: int) -> int:
        """Elements on one rank."""
        return sum(part.elements(tp_size) for part in self.parts)


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of one recurrent layer of one sequence. `name` is its name in the row layout."""

    name: str
    kind: Kind
    shape: tuple[Extent, ...]

    def shape_on_rank(self, tp_size: int, draft_tokens: int) -> tuple[int, ...]:
        """Elements by dimension on one rank; a conv window is widened by the draft tokens."""
        *leading, last = (extent.elements(tp_size) for extent in self.shape)
        widened = last + (draft_tokens if self.kind is Kind.CONV_WINDOW else 0)
        return (*leading, widened)


def split_evenly(field: str, count: int, width: int = 1) -> Extent:
    """A dimension of one part that TP must divide."""
    return Extent((Part(field, count, width),))


def replicated(field: str, count: int) -> Extent:
    """A dimension that every rank keeps whole."""
    return Extent((Part(field, count, split=Split.REPLICATED),))

"""The row layout of a pool (rule C6): one row a slot, every tensor of every recurrent layer in it.

Each tensor is 256-byte aligned and has its own dtype, a layer's tensor over all rows is a strided
view. The padding that the alignment costs is a field of its own, so that planned bytes, allocated
bytes and the engines' own formulas can be compared to the byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from stateroom.residency.quantity import align_up

__all__ = ["ALIGNMENT_BYTES", "DTYPE_BYTES", "PlacedTensor", "RowLayout", "TensorSpec", "place"]

ALIGNMENT_BYTES = 256
LAYOUT_VERSION = 1
DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One state tensor of one layer of one sequence on one rank, after TP.

    `layer` counts from 0 in the whole model; `name` is "conv", "recurrent" or an auxiliary name;
    `shape` is one slot's, row-major; `dtype` is torch's name of it.
    """

    layer: int
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes without padding."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor and its offset inside the row, a multiple of 256 bytes."""

    spec: TensorSpec
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class RowLayout:
    """All tensors of a row in order, and the distance of two rows."""

    tensors: tuple[PlacedTensor, ...]
    row_stride_bytes: int

    @property
    def padding_bytes(self) -> int:
        """What the alignment costs a row."""
        return self.row_stride_bytes - sum(t.spec.size_bytes for t in self.tensors)

    def bytes_of(self, name: str) -> int:
        """Bytes a row of all tensors with this name, without padding."""
        return sum(t.spec.size_bytes for t in self.tensors if t.spec.name == name)

    @property
    def hash(self) -> str:
        """Identifies the layout (not the number of rows); equal on both sides of an attach."""
        lines = [f"v{LAYOUT_VERSION} {self.row_stride_bytes}"]
        lines += [
            f"{t.offset_bytes} {t.spec.layer} {t.spec.name} {'x'.join(map(str, t.spec.shape))} {t.spec.dtype}"
            for t in self.tensors
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def place(specs: Iterable[TensorSpec]) -> RowLayout:
    """Lays tensors out in the order given, each at the next multiple of 256 bytes."""
    placed: list[PlacedTensor] = []
    offset_bytes = 0
    for spec in specs:
        placed.append(PlacedTensor(spec, offset_bytes))
        offset_bytes = align_up(offset_bytes + spec.size_bytes, ALIGNMENT_BYTES)
    return RowLayout(tuple(placed), offset_bytes)

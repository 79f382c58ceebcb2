"""Stamps in the pools: each sequence writes who it is and how many tokens it has into every tensor of its
row on every rank, and looks for it at its next step. A wrong slot, a lost state or a dirty row shows.

Each state tensor of a row carries its stamp twice, at its first and at its last eight bytes: a hash of the
id in the low half, the tokens so far in the high half, written as raw words so that every dtype works.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

__all__ = ["Pool", "PoolStamps", "Rows", "id_hash"]

STAMP_BYTES = 8


class Pool(Protocol):
    """What stamps need of an attached pool."""

    @property
    def layers(self) -> Mapping[int, Mapping[str, torch.Tensor]]:
        """Views (rows, *shape) by layer and name."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows at once: `slots` int64 (n,), `hashes` and `counts` int32 (n,)."""

    slots: torch.Tensor
    hashes: torch.Tensor
    counts: torch.Tensor

    @classmethod
    def of(cls, slots: list[int], hashes: list[int], counts: list[int]) -> Rows:
        """From plain numbers."""
        return cls(
            torch.tensor(slots, dtype=torch.int64),
            torch.tensor(hashes, dtype=torch.int32),
            torch.tensor(counts, dtype=torch.int32),
        )

    def __len__(self) -> int:
        return self.slots.numel()


def id_hash(sequence_id: str) -> int:
    """A number of 31 bits for an id, never 0 (zero is a clean row)."""
    return (zlib.crc32(sequence_id.encode()) & 0x7FFF_FFFF) or 1


class PoolStamps:
    """Writes and checks the stamps of one rank's pool, all layers of some rows in one operation."""

    def __init__(self, pool: Pool) -> None:
        first = next(iter(next(iter(pool.layers.values())).values()))
        row_bytes = first.stride(0) * first.element_size()
        assert row_bytes % STAMP_BYTES == 0, f"a row of {row_bytes} bytes is not whole stamps (rule C6)"
        self._row_words = row_bytes // STAMP_BYTES
        # every layer's view, as words of eight bytes over the same memory
        self._words = torch.empty(0, dtype=torch.int64).set_(
            first.untyped_storage(), 0, (first.shape[0] * self._row_words,), (1,)
        )
        columns = {c for layer in pool.layers.values() for view in layer.values() for c in _columns(view)}
        self._columns = torch.tensor(sorted(columns), dtype=torch.int64)

    @property
    def stamps_count(self) -> int:
        """Stamps in one row."""
        return self._columns.numel()

    def write(self, rows: Rows) -> None:
        """Stamps the rows."""
        self._words.scatter_(0, self._places(rows), self._stamps(rows))

    def wrong(self, rows: Rows) -> list[int]:
        """Positions in `rows` whose stamps are not these."""
        found, expected = self._words.index_select(0, self._places(rows)), self._stamps(rows)
        if torch.equal(found, expected):
            return []
        differ = (found != expected).view(len(rows), -1).any(1)
        return [int(position) for position in differ.nonzero()[:, 0]]

    def found(self, slot: int) -> tuple[int, int]:
        """Hash and count at the first stamp of a row, for a sentence about it."""
        stamp = int(self._words[slot * self._row_words + int(self._columns[0])])
        return stamp & 0xFFFF_FFFF, stamp >> 32

    def is_clean(self, slot: int) -> bool:
        """Whether the whole row is zeros (rule C2)."""
        first = slot * self._row_words
        return not bool(self._words[first : first + self._row_words].any())

    def _places(self, rows: Rows) -> torch.Tensor:
        return (rows.slots[:, None] * self._row_words + self._columns).view(-1)

    def _stamps(self, rows: Rows) -> torch.Tensor:
        return (rows.counts.long() << 32 | rows.hashes.long()).repeat_interleave(self.stamps_count)


def _columns(view: torch.Tensor) -> tuple[int, ...]:
    """Positions of the stamps of one tensor inside a row; tensors start at multiples of 256 bytes (rule C6)."""
    size_bytes = view[0].numel() * view.element_size()
    offset_bytes = view.storage_offset() * view.element_size()
    stamps_count = size_bytes // STAMP_BYTES
    assert stamps_count, f"a state tensor of {size_bytes} bytes has no room for a stamp"
    assert not offset_bytes % STAMP_BYTES, f"a state tensor begins at byte {offset_bytes} of its row"
    first = offset_bytes // STAMP_BYTES
    return (first, first + stamps_count - 1)

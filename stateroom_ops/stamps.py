"""Stamps in the pools: each sequence writes who it is and how many tokens it has into every tensor of its
row on every rank, and looks for it at its next step. A wrong slot, a lost state or a dirty row shows.

Each state tensor of a row carries its stamp twice, at its first and at its last eight bytes, as two int32
words (a hash of the id, the tokens so far) through a view of bytes, so that every dtype works.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

__all__ = ["Pool", "PoolStamps", "Rows", "id_hash"]

WORD_BYTES = 4
STAMP_WORDS = 2


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
    """Writes and checks the stamps of one rank's pool, all layers in one operation."""

    def __init__(self, pool: Pool) -> None:
        first = next(iter(next(iter(pool.layers.values())).values()))
        row_bytes = first.stride(0) * first.element_size()
        assert row_bytes % WORD_BYTES == 0, f"a row of {row_bytes} bytes is not whole words (rule C6)"
        self._row_words = row_bytes // WORD_BYTES
        storage = first.untyped_storage()
        rows = first.shape[0]
        # every layer's view, as words: (rows, words of a row) over the same memory
        self._words = torch.empty(0, dtype=torch.int32).set_(
            storage, 0, (rows, self._row_words), (self._row_words, 1)
        )
        hash_columns = sorted(
            {column for layer in pool.layers.values() for view in layer.values() for column in _columns(view)}
        )
        self._hash_columns = torch.tensor(hash_columns, dtype=torch.int64)
        self._count_columns = self._hash_columns + 1

    @property
    def stamps_count(self) -> int:
        """Stamps in one row."""
        return self._hash_columns.numel()

    def write(self, rows: Rows) -> None:
        """Stamps the rows."""
        slots = rows.slots[:, None]
        self._words[slots, self._hash_columns] = rows.hashes[:, None].expand(-1, self.stamps_count)
        self._words[slots, self._count_columns] = rows.counts[:, None].expand(-1, self.stamps_count)

    def wrong(self, rows: Rows) -> list[int]:
        """Positions in `rows` whose stamps are not these."""
        slots = rows.slots[:, None]
        differ = (self._words[slots, self._hash_columns] != rows.hashes[:, None]).any(1)
        differ |= (self._words[slots, self._count_columns] != rows.counts[:, None]).any(1)
        return [int(position) for position in differ.nonzero()[:, 0]] if bool(differ.any()) else []

    def found(self, slot: int) -> tuple[int, int]:
        """Hash and count at the first stamp of a row, for a sentence about it."""
        row = self._words[slot]
        return int(row[self._hash_columns[0]]), int(row[self._count_columns[0]])

    def is_clean(self, slot: int) -> bool:
        """Whether the whole row is zeros (rule C2)."""
        return not bool(self._words[slot].any())


def _columns(view: torch.Tensor) -> tuple[int, ...]:
    """Word positions of the stamps of one tensor inside a row."""
    size_bytes = view[0].numel() * view.element_size()
    offset_bytes = view.storage_offset() * view.element_size()
    first = offset_bytes // WORD_BYTES
    words = size_bytes // WORD_BYTES
    assert words >= STAMP_WORDS, f"a state tensor of {size_bytes} bytes has no room for a stamp"
    return (first, first + (words // STAMP_WORDS - 1) * STAMP_WORDS)

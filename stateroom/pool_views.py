"""A pool's bytes as torch tensors: one strided view a state tensor, over all rows (rule C6).

Used by both sides of an attach: the cache service scrubs rows, workers read and write states.
"""

from __future__ import annotations

import mmap
import os

import torch

from stateroom.residency.layout import DTYPE_BYTES, PlacedTensor, RowLayout

__all__ = ["descriptor_greeting", "map_pool", "tensor_view", "views"]


def descriptor_greeting(boot_id: str) -> bytes:
    """What comes with a pool's descriptor: a service that restarts meanwhile cannot pass for the old one (C3)."""
    return f"stateroom-pool-1 {boot_id}".encode()


def map_pool(descriptor: int, pool_bytes: int) -> torch.Tensor:
    """The whole pool as a uint8 tensor of shape (pool_bytes,), shared with everyone who maps it."""
    size_bytes = os.fstat(descriptor).st_size
    assert size_bytes >= pool_bytes, f"the descriptor has {size_bytes} bytes and the pool {pool_bytes}"
    return torch.frombuffer(mmap.mmap(descriptor, pool_bytes), dtype=torch.uint8)


def tensor_view(pool: torch.Tensor, layout: RowLayout, placed: PlacedTensor, rows: int) -> torch.Tensor:
    """Shape (rows, *shape), the tensor's own dtype, the row stride of the layout; no copy.

    Offsets are multiples of 256 bytes, so every dtype divides them. Index with 64 bits: row stride x
    rows passes 2^32 elements in real pools.
    """
    size_bytes = DTYPE_BYTES[placed.spec.dtype]
    strides = [layout.row_stride_bytes // size_bytes]
    step = 1
    for extent in reversed(placed.spec.shape):
        strides.insert(1, step)
        step *= extent
    typed = pool.view(getattr(torch, placed.spec.dtype))
    return typed.as_strided((rows, *placed.spec.shape), strides, placed.offset_bytes // size_bytes)


def views(pool: torch.Tensor, layout: RowLayout, rows: int) -> dict[int, dict[str, torch.Tensor]]:
    """All state tensors by layer (index in the whole model) and name."""
    layers: dict[int, dict[str, torch.Tensor]] = {}
    for placed in layout.tensors:
        layers.setdefault(placed.spec.layer, {})[placed.spec.name] = tensor_view(pool, layout, placed, rows)
    return layers

"""The torch pool of one rank: rows of bytes in a memfd, committed at start, scrubbed by a thread.

A memfd leaves no name behind and is not bounded by /dev/shm (rule C7). Its pages are taken when it is
built, after a look at what the machine and the container can give: memory that is not there fails
here, with numbers, and not under load (scenario P05).
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from stateroom.pool_views import map_pool
from stateroom.residency.layout import RowLayout
from stateroom.residency.quantity import format_bytes

__all__ = ["Pool", "PoolError", "available_bytes"]

_CGROUP = Path("/sys/fs/cgroup")
_HEADROOM_BYTES = 64 * 2**20  # what the process itself still needs


class PoolError(RuntimeError):
    """The memory cannot be had; the message names both numbers and the remedy."""


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def available_bytes() -> int:
    """What can still be taken: the machine's MemAvailable or the container's limit, the smaller one."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        available = min(available, limit - used)
    return available


class Pool:
    """rows x row_stride_bytes bytes; `descriptor` is what workers map."""

    def __init__(self, layout: RowLayout, rows: int) -> None:
        self.layout = layout
        self.rows = rows
        self.size_bytes = rows * layout.row_stride_bytes
        room_bytes = available_bytes() - _HEADROOM_BYTES
        if self.size_bytes > room_bytes:
            raise PoolError(
                f"a pool of {rows} rows needs {self.size_bytes} bytes ({format_bytes(self.size_bytes)}) and "
                f"{max(0, room_bytes)} ({format_bytes(max(0, room_bytes))}) are free here: lower --quota"
            )
        self.descriptor = os.memfd_create("stateroom-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(self.descriptor, 0o600)
            os.posix_fallocate(self.descriptor, 0, self.size_bytes)  # takes every page now
        except OSError as error:
            os.close(self.descriptor)
            raise PoolError(
                f"a pool of {self.size_bytes} bytes ({format_bytes(self.size_bytes)}) could not be taken "
                f"({error.strerror}): lower --quota"
            ) from None
        self._rows = map_pool(self.descriptor, self.size_bytes).view(rows, layout.row_stride_bytes)

    def scrub(self, slots: tuple[int, ...]) -> None:
        """Zeroes rows by assignment, so that NaN goes too (rule C2). Blocks: call it off the loop."""
        for slot in slots:
            self._rows[slot].zero_()

    def row(self, slot: int) -> torch.Tensor:
        """The bytes of one row, for checks."""
        return self._rows[slot]

    def close(self) -> None:
        """Gives the descriptor back; a worker that mapped the pool keeps its mapping."""
        os.close(self.descriptor)

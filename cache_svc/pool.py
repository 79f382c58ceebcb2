"""The torch pool of one rank: rows of bytes in a memfd, committed at start, scrubbed by a thread.

A memfd leaves no name behind and is not bounded by /dev/shm (rule C7). Its pages are taken when it is
built, piece by piece after a look at what is left: memory that is not there fails here, with numbers,
and not under load (scenario P05), also where several ranks of one machine build at once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

import torch

from cache_svc.memory import available_bytes
from stateroom.pool_views import map_pool
from stateroom.residency.layout import RowLayout
from stateroom.residency.quantity import format_bytes

__all__ = ["Pool", "PoolError"]

_HEADROOM_BYTES = 64 * 2**20  # what the process itself still needs
_PIECE_BYTES = 256 * 2**20  # taken between two looks: 0.1 s or so
# A worker has the descriptor too: shrunk by one, the pool would kill all others with SIGBUS.
_SEALS = fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class PoolError(RuntimeError):
    """The memory cannot be had; the message names both numbers and the remedy."""


class Pool:
    """rows x row_stride_bytes bytes; `descriptor` is what workers map. `stopping` ends a long build."""

    def __init__(self, layout: RowLayout, rows: int, stopping: Callable[[], bool] = lambda: False) -> None:
        self.layout = layout
        self.rows = rows
        self.size_bytes = rows * layout.row_stride_bytes
        self._check_room(self.size_bytes)
        self.descriptor = os.memfd_create("stateroom-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            self._take(stopping)
            fcntl.fcntl(self.descriptor, *_SEALS)
            self._rows = map_pool(self.descriptor, self.size_bytes).view(rows, layout.row_stride_bytes)
        except BaseException as error:
            os.close(self.descriptor)
            if not isinstance(error, OSError):
                raise
            raise PoolError(
                f"a pool of {self.size_bytes} bytes ({format_bytes(self.size_bytes)}) could not be taken "
                f"({error.strerror}): lower --quota"
            ) from None

    def _take(self, stopping: Callable[[], bool]) -> None:
        """Takes every page now."""
        os.fchmod(self.descriptor, 0o600)
        for start in range(0, self.size_bytes, _PIECE_BYTES):
            piece_bytes = min(_PIECE_BYTES, self.size_bytes - start)
            if stopping():
                raise PoolError("the pool was not built: the service stops")
            self._check_room(piece_bytes, start)
            os.posix_fallocate(self.descriptor, start, piece_bytes)

    def _check_room(self, needed_bytes: int, taken_bytes: int = 0) -> None:
        room_bytes = max(0, available_bytes() - _HEADROOM_BYTES)
        if needed_bytes > room_bytes:
            room_bytes += taken_bytes
            raise PoolError(
                f"a pool of {self.rows} rows needs {self.size_bytes} bytes ({format_bytes(self.size_bytes)}) and "
                f"{room_bytes} ({format_bytes(room_bytes)}) are free here: lower --quota"
            )

    def scrub(self, slots: tuple[int, ...]) -> None:
        """Zeroes rows by assignment, so that NaN goes too (rule C2). Blocks: call it off the loop."""
        for slot in slots:
            self._rows[slot].zero_()

    def row(self, slot: int) -> torch.Tensor:
        """The bytes of one row, for checks."""
        return self._rows[slot]

    def close(self) -> None:
        """Gives the descriptor back, once; a worker that mapped the pool keeps its mapping."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

"""The side socket that passes the pool's descriptor to workers of the same user (rule C7).

gRPC cannot pass descriptors; a unix socket with SCM_RIGHTS can. A worker connects, gets one message
with the descriptor, and keeps the connection while it is attached: that is how workers are counted.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import structlog

__all__ = ["DescriptorSocket"]

_GREETING = b"stateroom-pool-1"


class DescriptorSocket:
    """Serves the descriptor that `descriptor()` returns, None while there is no pool."""

    def __init__(self, path: Path, descriptor: Callable[[], int | None]) -> None:
        self.path = path
        self.attached_count = 0
        self._descriptor = descriptor
        self._log = structlog.get_logger()
        self._workers: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None

    async def serve(self) -> None:
        """Until cancelled."""
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = listener
        listener.bind(str(self.path))
        os.chmod(self.path, 0o600)
        listener.listen(16)
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            while True:
                connection, _ = await loop.sock_accept(listener)
                task = asyncio.ensure_future(self._hand_out(connection))
                self._workers.add(task)
                task.add_done_callback(self._workers.discard)
        finally:
            listener.close()
            self.path.unlink(missing_ok=True)
            for task in self._workers:
                task.cancel()

    async def _hand_out(self, connection: socket.socket) -> None:
        with connection:
            _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            descriptor = self._descriptor()
            if uid not in (os.getuid(), 0) or descriptor is None:
                self._log.warning("attach refused", uid=uid, pool=descriptor is not None)
                return
            connection.setblocking(False)
            socket.send_fds(connection, [_GREETING], [descriptor])
            self.attached_count += 1
            try:
                await asyncio.get_running_loop().sock_recv(connection, 1)
            except ConnectionError:
                pass
            finally:
                self.attached_count -= 1

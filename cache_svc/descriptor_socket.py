"""The side socket that passes the pool's descriptor to workers of the same user (rule C7).

gRPC cannot pass descriptors; a unix socket with SCM_RIGHTS can. A worker connects, gets one message
with the descriptor and the boot id it belongs to, and keeps the connection while it is attached: that
is how workers are counted.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import structlog

from stateroom.channel import AddressError, check_listen_address, private_dir
from stateroom.pool_views import descriptor_greeting

__all__ = ["DescriptorSocket", "peer_uid"]

_BACKLOG = 16  # workers of one rank that attach at the same moment: one, and a few tools


class DescriptorSocket:
    """Serves the descriptor that `descriptor()` returns, None while there is no pool."""

    def __init__(self, path: Path, boot_id: str, descriptor: Callable[[], int | None]) -> None:
        self.path = path
        self.attached_count = 0
        self._greeting = descriptor_greeting(boot_id)
        self._descriptor = descriptor
        self._log = structlog.get_logger()
        self._workers: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None

    def listen(self) -> None:
        """Takes the path, for its owner only. AddressError names what is wrong with it."""
        try:
            private_dir(self.path.parent)
            check_listen_address(f"unix:{self.path}", flag="--descriptor-socket")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            os.fchmod(listener.fileno(), 0o600)  # before it has a name
            listener.bind(str(self.path))
        except OSError as error:
            raise AddressError(
                f"socket {str(self.path)!r} cannot be made ({error.strerror or error}): give --descriptor-socket "
                "a path in a folder of your own"
            ) from None
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._listener = listener

    async def serve(self) -> None:
        """Hands out the descriptor until cancelled; listens first where that was not done."""
        if self._listener is None:
            self.listen()
        assert self._listener is not None, "listen sets it"
        loop = asyncio.get_running_loop()
        try:
            while True:
                connection, _ = await loop.sock_accept(self._listener)
                task = asyncio.ensure_future(self._hand_out(connection))
                self._workers.add(task)
                task.add_done_callback(self._workers.discard)
        finally:
            self.close()

    def close(self) -> None:
        """Lets workers go and removes the name."""
        if self._listener is not None:
            self._listener.close()
            self.path.unlink(missing_ok=True)
            self._listener = None
        for task in self._workers:
            task.cancel()

    async def _hand_out(self, connection: socket.socket) -> None:
        with connection:
            uid, descriptor = peer_uid(connection), self._descriptor()
            if uid not in (os.getuid(), 0) or descriptor is None:
                self._log.warning("attach refused", uid=uid, pool=descriptor is not None)
                return
            connection.setblocking(False)
            try:
                socket.send_fds(connection, [self._greeting], [descriptor])
            except OSError:
                return  # it has gone already
            self.attached_count += 1
            try:
                await asyncio.get_running_loop().sock_recv(connection, 1)
            except ConnectionError:
                pass
            finally:
                self.attached_count -= 1


def peer_uid(connection: socket.socket) -> int:
    """User id of the process at the other end, as the kernel saw it connect."""
    _, uid, _ = struct.unpack("3I", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)

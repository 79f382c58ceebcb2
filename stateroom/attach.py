"""Worker side of the pool: map it, and have every layer's states as torch views, with no copy (C6, C7).

pool = attach("unix:/run/stateroom/rank0.sock")
conv = pool.view(layer=3, name="conv")          # (rows, *shape), the layer's own dtype
state = pool.view(layer=3, name="recurrent")
pool.check(grant.handles[0], rank=0)            # before the first use of a handle
"""

from __future__ import annotations

import os
import socket

import grpc
import torch

from stateroom.channel import open_sync_channel
from stateroom.client.decisions import Handle
from stateroom.errors import StateroomError, from_rpc_error
from stateroom.pool_views import descriptor_greeting, map_pool, views
from stateroom.residency.layout import PlacedTensor, RowLayout, TensorSpec
from stateroom.residency.reasons import ErrorReason
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.v1.cache_service_pb2_grpc import CacheServiceStub

__all__ = ["AttachedPool", "attach", "check_rows"]

CALL_SECONDS_MAX = 5.0
LAYOUT_VERSION = 1
GREETING_BYTES_MAX = 256  # a version and a boot id


class AttachedPool:
    """A mapped pool. `rows` counts reserved rows too; row 0 is for padding."""

    def __init__(self, connection: socket.socket, descriptor: int, answer: pb.AttachPoolResponse) -> None:
        self.boot_id = answer.boot_id
        self.rows = answer.layout.rows
        self.reserved_slots = answer.layout.reserved_slots
        self.layout = _layout_of(answer.layout)
        self._connection = connection
        self._descriptor = descriptor
        self.bytes: torch.Tensor = map_pool(descriptor, answer.pool_bytes)
        self.layers = views(self.bytes, self.layout, self.rows)

    def view(self, layer: int, name: str) -> torch.Tensor:
        """Shape (rows, *shape); KeyError names what this rank does not hold."""
        if layer not in self.layers or name not in self.layers[layer]:
            raise KeyError(
                f"layer {layer} has no {name!r} state on this rank: it holds layers {sorted(self.layers)}"
            )
        return self.layers[layer][name]

    def check(self, handle: Handle, rank: int) -> int:
        """The row of a handle; refuses one of another pool, a reserved row and anything out of range (C3)."""
        theirs = handle.boot_ids[rank] if rank < len(handle.boot_ids) else ""
        if theirs != self.boot_id:
            raise StateroomError(
                ErrorReason.WRONG_BOOT_ID,
                f"the handle of slot {handle.slot} names boot id {theirs!r} of rank {rank} and the attached pool has "
                f"{self.boot_id!r}: drop the handle, it is of another pool",
            )
        if not self.reserved_slots <= handle.slot < self.rows:
            raise StateroomError(
                ErrorReason.SLOT_OUT_OF_RANGE,
                f"slot {handle.slot} is not one of {self.reserved_slots} to {self.rows - 1}: never index a pool with it",
            )
        return handle.slot

    def close(self) -> None:
        """Detaches. Views that are still held keep the memory mapped."""
        self.layers = {}
        self.bytes = torch.empty(0, dtype=torch.uint8)
        if self._descriptor >= 0:
            self._connection.close()
            os.close(self._descriptor)
            self._descriptor = -1


def check_rows(pool: AttachedPool, seats: int, reserved_slots: int) -> None:
    """Compares the pool's rows with the session's numbers (rule B4): one agreement, one number everywhere.

    More rows than seats are right after the cap has fallen (rule B8). Raises NUMBERS_DIFFER else.
    """
    if pool.rows < seats + reserved_slots or pool.reserved_slots != reserved_slots:
        raise StateroomError(
            ErrorReason.NUMBERS_DIFFER,
            f"the pool has {pool.rows} rows with {pool.reserved_slots} reserved and the session says {seats} seats "
            f"with {reserved_slots} reserved: attach the pools of the group that the session is registered with",
        )


def attach(address: str, *, layout_hash: str = "", session_id: str = "") -> AttachedPool:
    """Maps the pool of the rank at `address`; same host only.

    Raises StateroomError: NOT_COMMITTED (the group is not ready), NO_POOL (no recurrent layers on this
    rank), LAYOUT_DIFFERS (`layout_hash` is not that of the pool), or the transport's own failure.
    """
    with open_sync_channel(address) as channel:
        request = pb.AttachPoolRequest(layout_hash=layout_hash, session_id=session_id)
        try:
            answer = CacheServiceStub(channel).AttachPool(request, timeout=CALL_SECONDS_MAX)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
    _check_layout(address, answer.layout)
    return _receive(address, answer)


def _check_layout(address: str, layout: pb.PoolLayout) -> None:
    """Both sides compute one hash, so that no view is laid over other bytes than the service means (C6)."""
    if layout.version != LAYOUT_VERSION:
        raise StateroomError(
            ErrorReason.LAYOUT_DIFFERS,
            f"the pool at {address} has layout version {layout.version} and this SDK reads {LAYOUT_VERSION}: "
            "use one version on both sides",
        )
    computed = _layout_of(layout).hash
    if layout.hash != computed:
        raise StateroomError(
            ErrorReason.LAYOUT_DIFFERS,
            f"the pool at {address} names layout {layout.hash} and its tensors make {computed}: "
            "use one version on both sides",
        )


def _receive(address: str, answer: pb.AttachPoolResponse) -> AttachedPool:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    descriptors: list[int] = []
    try:
        connection.settimeout(CALL_SECONDS_MAX)
        connection.connect(answer.descriptor_socket)
        greeting, descriptors, _, _ = socket.recv_fds(connection, GREETING_BYTES_MAX, 1)
        _check_greeting(address, answer, greeting, len(descriptors))
        return AttachedPool(connection, descriptors[0], answer)
    except BaseException as error:
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)
        if not isinstance(error, OSError):
            raise
        raise StateroomError(
            None,
            f"descriptor socket {answer.descriptor_socket!r} of {address} cannot be reached ({error.strerror or error}): "
            "attach from the same host, or share the socket's folder",
        ) from None


def _check_greeting(address: str, answer: pb.AttachPoolResponse, greeting: bytes, descriptors: int) -> None:
    if not descriptors:
        raise StateroomError(
            None, f"{address} passed no descriptor: attach as the user that runs the cache service"
        )
    if greeting != descriptor_greeting(answer.boot_id):
        raise StateroomError(
            ErrorReason.WRONG_BOOT_ID,
            f"{address} answered as boot id {answer.boot_id} and its socket speaks of {greeting.decode(errors='replace')!r}: "
            "it has restarted meanwhile, attach again",
        )


def _layout_of(message: pb.PoolLayout) -> RowLayout:
    tensors = tuple(
        PlacedTensor(TensorSpec(t.layer, t.name, tuple(t.shape), t.dtype), t.offset_bytes)
        for t in message.tensors
    )
    return RowLayout(tensors, message.row_stride_bytes)

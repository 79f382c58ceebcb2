"""A cache service inside the test's own process and loop: the real server on a unix socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from cache_svc.descriptor_socket import DescriptorSocket
from cache_svc.driver import RankDriver
from cache_svc.servicer import Servicer
from cache_svc.settings import Settings
from stateroom.channel import open_channel
from stateroom.errors import from_rpc_error
from stateroom.residency.model import read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.rank_state import StateOptions, rank_state
from stateroom.residency.reasons import ErrorReason
from stateroom.residency.sizing import SizingTerms
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.v1 import types_pb2 as types
from stateroom.v1.cache_service_pb2_grpc import CacheServiceStub, add_CacheServiceServicer_to_server
from stateroom_ops.group_settings import twin_config

__all__ = ["LEADER", "Service", "commit", "reason_of", "service"]

LEADER = "leader-1"


class Service:
    """The running parts, for a test to look at."""

    def __init__(
        self, address: str, driver: RankDriver, socket: DescriptorSocket, stub: CacheServiceStub
    ) -> None:
        self.address, self.driver, self.socket, self.stub = address, driver, socket, stub


@asynccontextmanager
async def service(folder: Path, cap: int = 4, attention_only: bool = False) -> AsyncIterator[Service]:
    """One rank of a narrow twin whose quota affords `cap` sequences."""
    import asyncio

    config = dict(twin_config(factor=16))
    config.update(num_hidden_layers=4, layer_types=["linear_attention"] * 3 + ["full_attention"])
    if attention_only:
        config["layer_types"] = ["full_attention"] * 4
    state = rank_state(read_model(config), Parallel(), StateOptions(ssm_dtype="bfloat16"))
    address = f"unix:{folder}/rank.sock"
    settings = Settings(
        parallel=Parallel(),
        state=state,
        terms=SizingTerms(quota_bytes=max(1, state.slot_bytes) * (cap + 1), slot_bytes=state.slot_bytes),
        listen=(address,),
        descriptor_socket=folder / "rank.pool",
        state_dir=folder / "state",
        trace_file=None,
    )
    driver = RankDriver(settings, lambda: None, lambda: socket.attached_count)
    socket = DescriptorSocket(
        settings.descriptor_socket,
        driver.core.boot_id,
        lambda: driver.pool.descriptor if driver.pool is not None else None,
    )
    server = grpc.aio.server()
    add_CacheServiceServicer_to_server(Servicer(driver), server)
    server.add_insecure_port(address)
    await server.start()
    handing_out = asyncio.ensure_future(socket.serve())
    channel = open_channel(address)
    try:
        yield Service(address, driver, socket, CacheServiceStub(channel))
    finally:
        await channel.close()
        handing_out.cancel()
        await driver.close()
        await server.stop(0)


async def commit(
    running: Service, cap: int, asked: int = 8, term: int = 1, leader: str = LEADER, seconds_max: float = 10
) -> pb.CommitResidencyResponse:
    """As the scheduler of that term does."""
    request = pb.CommitResidencyRequest(
        term=term,
        leader_boot_id=leader,
        rank_boot_id=running.driver.core.boot_id,
        agreed=types.Residency(bounded=types.Bounded(slots_count=cap)),
        asked=asked,
        reserved_slots=1,
    )
    return await running.stub.CommitResidency(request, timeout=seconds_max)


async def reason_of(call: Awaitable[object]) -> ErrorReason | None:
    """The catalogue's reason that a call is refused with."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return from_rpc_error(failed.value).reason

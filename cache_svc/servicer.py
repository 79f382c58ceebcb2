"""CacheService: convert, call, convert. Refusals become gRPC errors here (stateroom.errors)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from cache_svc import convert
from cache_svc.driver import BindStream, RankDriver
from stateroom.errors import abort
from stateroom.ordered_stream import OrderedStream
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.v1.cache_service_pb2_grpc import CacheServiceServicer

__all__ = ["Servicer"]

Context = grpc.aio.ServicerContext[Any, Any]
PAGE_SLOTS_MAX = 1000
HEARTBEAT_MS_DEFAULT = 500


class Servicer(CacheServiceServicer):
    """One rank's service."""

    def __init__(self, driver: RankDriver) -> None:
        self._driver = driver

    async def ResidencyQuery(
        self, request: pb.ResidencyQueryRequest, context: Context
    ) -> pb.ResidencyQueryResponse:
        try:
            return self._driver.residency(request.asked)
        except Refused as refused:
            await abort(context, refused)

    async def CommitResidency(
        self, request: pb.CommitResidencyRequest, context: Context
    ) -> pb.CommitResidencyResponse:
        try:
            return await self._driver.commit(request)
        except Refused as refused:
            await abort(context, refused)

    async def AttachPool(self, request: pb.AttachPoolRequest, context: Context) -> pb.AttachPoolResponse:
        try:
            return self._attach(request)
        except Refused as refused:
            await abort(context, refused)

    def _attach(self, request: pb.AttachPoolRequest) -> pb.AttachPoolResponse:
        core, pool, settings = self._driver.core, self._driver.pool, self._driver.settings
        if not settings.state.slot_bytes:
            raise Refused(
                ErrorReason.NO_POOL,
                f"rank {settings.parallel.rank} has no recurrent layers: there is nothing to attach",
            )
        if core.ledger is None or pool is None:
            raise Refused(ErrorReason.NOT_COMMITTED, "the ranks have not agreed yet: wait for readiness")
        if request.layout_hash not in ("", pool.layout.hash):
            raise Refused(
                ErrorReason.LAYOUT_DIFFERS,
                f"the pool's layout is {pool.layout.hash} and the worker was built for {request.layout_hash}: "
                "use one config and one --ssm-dtype on both sides",
            )
        return pb.AttachPoolResponse(
            layout=convert.pool_layout(pool.layout, pool.rows, core.ledger.reserved_slots),
            descriptor_socket=str(settings.descriptor_socket),
            boot_id=core.boot_id,
            pool_bytes=pool.size_bytes,
            device="cpu",
        )

    async def Bind(  # type: ignore[override]  # reads and writes the context: pushes interleave
        self, request_iterator: AsyncIterator[pb.BindRequest], context: Context
    ) -> None:
        stream: BindStream | None = None
        try:
            while isinstance(message := await context.read(), pb.BindRequest):
                if stream is None:
                    stream = OrderedStream(message.leader_boot_id, context)
                    self._driver.open_stream(stream, message)
                else:
                    self._driver.apply(stream, message)
                await stream.flush()
        except Refused as refused:
            await abort(context, refused)
        except asyncio.CancelledError:
            if stream is None or stream.ended is None:
                raise  # the leader is gone
            await abort(context, stream.ended)
        finally:
            if stream is not None:
                self._driver.close_stream(stream)

    async def ListSlots(self, request: pb.ListSlotsRequest, context: Context) -> pb.ListSlotsResponse:
        try:
            return self._page(request)
        except Refused as refused:
            await abort(context, refused)

    def _page(self, request: pb.ListSlotsRequest) -> pb.ListSlotsResponse:
        token, ledger = request.page_token, self._driver.core.ledger
        if token and not token.isdigit():
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"page token {token[:40]!r} is not ours: pass the last response's token",
            )
        if request.page_size > PAGE_SLOTS_MAX:
            raise Refused(
                ErrorReason.INVALID_REQUEST,
                f"page_size is {request.page_size}: ask for at most {PAGE_SLOTS_MAX}",
            )
        if ledger is None:
            return pb.ListSlotsResponse()
        return convert.page_to(ledger, int(token or 0), request.page_size or PAGE_SLOTS_MAX)

    async def WatchResidency(
        self, request: pb.WatchResidencyRequest, context: Context
    ) -> AsyncIterator[pb.WatchResidencyResponse]:
        heartbeat_ms = request.heartbeat_ms or HEARTBEAT_MS_DEFAULT
        if not 50 <= heartbeat_ms <= 60_000 or not request.asked:
            await abort(
                context,
                Refused(
                    ErrorReason.INVALID_REQUEST,
                    f"heartbeat_ms is {heartbeat_ms} and asked {request.asked}: give 50 to 60000 ms and at least 1 asked",
                ),
            )
        try:
            while True:
                self._driver.check_serving()
                version = self._driver.watchers.version
                yield pb.WatchResidencyResponse(residency=self._driver.residency(request.asked))
                await self._driver.watchers.wait(version, heartbeat_ms / 1000)
        except Refused as refused:
            await abort(context, refused)

    async def SetQuota(self, request: pb.SetQuotaRequest, context: Context) -> pb.SetQuotaResponse:
        try:
            return await self._driver.set_quota(request)
        except Refused as refused:
            await abort(context, refused)

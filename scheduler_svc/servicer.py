"""SchedulerService: convert, call, convert. Refusals become gRPC errors here (stateroom.errors)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from scheduler_svc.convert import people, steps
from scheduler_svc.core.events import CancelAsked
from scheduler_svc.core.explain import describe, explain
from scheduler_svc.driver import GroupDriver
from stateroom.errors import abort
from stateroom.ordered_stream import OrderedStream
from stateroom.residency.reasons import Refused
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer

__all__ = ["Servicer"]


class Servicer(SchedulerServiceServicer):
    """One group's service."""

    def __init__(self, driver: GroupDriver) -> None:
        self._driver = driver

    async def RegisterSession(
        self,
        request: pb.RegisterSessionRequest,
        context: grpc.aio.ServicerContext[pb.RegisterSessionRequest, pb.RegisterSessionResponse],
    ) -> pb.RegisterSessionResponse:
        try:
            return self._driver.registration(self._driver.register(request))
        except Refused as refused:
            await abort(context, refused)

    async def Step(  # type: ignore[override]  # reads and writes the context: answers and pushes interleave
        self,
        request_iterator: AsyncIterator[pb.StepRequest],
        context: grpc.aio.ServicerContext[pb.StepRequest, pb.StepResponse],
    ) -> None:
        stream: OrderedStream[pb.StepResponse] | None = None
        try:
            while isinstance(message := await context.read(), pb.StepRequest):
                if stream is None:
                    stream = OrderedStream[pb.StepResponse](message.session_id, context)
                    self._driver.open_stream(stream)
                self._driver.handle(steps.step_message(stream.owner, message))
                await stream.flush()
        except Refused as refused:
            await abort(context, refused)
        except asyncio.CancelledError:
            if stream is None or stream.ended is None:
                raise  # the executor is gone
            await abort(context, stream.ended)
        finally:
            if stream is not None:
                self._driver.close_stream(stream)

    async def Cancel(
        self,
        request: pb.CancelRequest,
        context: grpc.aio.ServicerContext[pb.CancelRequest, pb.CancelResponse],
    ) -> pb.CancelResponse:
        alive = request.sequence_id in self._driver.core.world.sequences
        try:
            self._driver.handle(CancelAsked(request.sequence_id))
        except Refused as refused:
            await abort(context, refused)
        return pb.CancelResponse(cancelled=alive)

    async def Explain(
        self,
        request: pb.ExplainRequest,
        context: grpc.aio.ServicerContext[pb.ExplainRequest, pb.ExplainResponse],
    ) -> pb.ExplainResponse:
        try:
            return people.explanation(explain(self._driver.core.world, request.sequence_id))
        except Refused as refused:
            await abort(context, refused)

    async def DescribeResidency(
        self,
        request: pb.DescribeResidencyRequest,
        context: grpc.aio.ServicerContext[pb.DescribeResidencyRequest, pb.DescribeResidencyResponse],
    ) -> pb.DescribeResidencyResponse:
        description = describe(self._driver.core.world)
        return people.description(description, self._driver.term, self._driver.reports())

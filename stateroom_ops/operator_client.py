"""What an operator asks a group: the agreement, the story of a sequence, a rank's ledger."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stateroom.channel import open_channel
from stateroom.errors import StateroomError, from_rpc_error
from stateroom.v1 import cache_service_pb2 as cache_pb
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1.cache_service_pb2_grpc import CacheServiceStub
from stateroom.v1.scheduler_service_pb2_grpc import SchedulerServiceStub

__all__ = ["OperatorClient", "list_slots", "set_quota"]

CALL_SECONDS_MAX = 5.0


class OperatorClient:
    """Calls of one scheduler; `async with` closes the channel. Raises StateroomError, one sentence."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self._stub = SchedulerServiceStub(self._channel)
        self._health: Any = health_pb2_grpc.HealthStub(self._channel)

    async def __aenter__(self) -> OperatorClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._channel.close()

    async def describe(self) -> pb.DescribeResidencyResponse:
        """The agreement and who holds what."""
        found: pb.DescribeResidencyResponse = await self._call(
            self._stub.DescribeResidency, pb.DescribeResidencyRequest()
        )
        return found

    async def explain(self, sequence_id: str) -> pb.ExplainResponse:
        """Why a sequence waits or waited."""
        found: pb.ExplainResponse = await self._call(
            self._stub.Explain, pb.ExplainRequest(sequence_id=sequence_id)
        )
        return found

    async def is_ready(self) -> bool:
        """Whether the group admits (health name `readiness`)."""
        answer: health_pb2.HealthCheckResponse = await self._call(
            self._health.Check, health_pb2.HealthCheckRequest(service="readiness")
        )
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, timeout=CALL_SECONDS_MAX)
        except grpc.aio.AioRpcError as error:
            raise _named(from_rpc_error(error), "scheduler", self.address) from None


async def list_slots(address: str) -> cache_pb.ListSlotsResponse:
    """Counts and integrity of one rank's ledger, with its first slot only."""
    async with open_channel(address) as channel:
        try:
            answer: cache_pb.ListSlotsResponse = await CacheServiceStub(channel).ListSlots(
                cache_pb.ListSlotsRequest(page_size=1), timeout=CALL_SECONDS_MAX
            )
            return answer
        except grpc.aio.AioRpcError as error:
            raise _named(from_rpc_error(error), "cache service", address) from None


async def set_quota(address: str, quota_bytes: int, boot_id: str) -> cache_pb.SetQuotaResponse:
    """Another quota for the rank at this address, as long as it is this process (rule B8)."""
    request = cache_pb.SetQuotaRequest(quota_bytes=quota_bytes, rank_boot_id=boot_id)
    async with open_channel(address) as channel:
        try:
            answer: cache_pb.SetQuotaResponse = await CacheServiceStub(channel).SetQuota(
                request, timeout=CALL_SECONDS_MAX
            )
            return answer
        except grpc.aio.AioRpcError as error:
            raise _named(from_rpc_error(error), "cache service", address) from None


def _named(error: StateroomError, what: str, address: str) -> StateroomError:
    """A transport fault in one sentence with the address and the remedy."""
    if error.reason is not None:
        return error
    return StateroomError(
        None, f"no {what} answers at {address} ({error.message}): start it or correct the address", error.code
    )

"""How a session comes to a ready group: patient, and stopped at once by a cancel (facts M15, M16)."""

from __future__ import annotations

import grpc
import grpc.aio
from tenacity import retry_if_exception, stop_before_delay, stop_never, wait_exponential
from tenacity.stop import StopBaseT
from tenacity.wait import WaitBaseT

from stateroom.errors import StateroomError, from_rpc_error
from stateroom.residency.reasons import ErrorReason
from stateroom.v1 import scheduler_service_pb2 as pb

__all__ = ["FINAL_REASONS", "PATIENCE", "is_worth_waiting", "registration", "stop_after", "translated"]

PATIENCE: WaitBaseT = wait_exponential(multiplier=0.05, max=0.5)
# What ends a stream for good: said to the caller instead of connecting again.
FINAL_REASONS = frozenset({ErrorReason.INVALID_REQUEST, ErrorReason.STREAM_REPLACED})
_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def _passes(error: BaseException) -> bool:
    """NOT_READY, an absent or a stopping scheduler pass; a refusal does not."""
    if not isinstance(error, StateroomError):
        return False
    return error.reason in (ErrorReason.NOT_READY, ErrorReason.DRAINING) or (
        error.reason is None and error.code in _PASSING
    )


def registration(
    executor: str, session_id: str, attaches_pools: bool, engine_budgets: bool
) -> pb.RegisterSessionRequest:
    """What a session says of itself, at first and whenever it comes back."""
    return pb.RegisterSessionRequest(
        executor=executor,
        session_id=session_id,
        attaches_pools=attaches_pools,
        budgets=pb.BUDGETS_ENGINE if engine_budgets else pb.BUDGETS_STATEROOM,
    )


is_worth_waiting = retry_if_exception(_passes)


def stop_after(seconds: float | None) -> StopBaseT:
    """Before the budget is over, never after it; None waits for ever."""
    return stop_never if seconds is None else stop_before_delay(seconds)


def translated(error: grpc.aio.AioRpcError | grpc.RpcError, address: str) -> StateroomError:
    """The catalogue's error; a transport error names the address and the remedy."""
    found = from_rpc_error(error)
    if found.reason is None and found.code is grpc.StatusCode.UNAVAILABLE:
        return StateroomError(
            None,
            f"no scheduler answers at {address} ({found.message}): start it or correct the address",
            found.code,
        )
    return found

"""The error catalogue: one reason, one gRPC code; translated here and nowhere else.

On the wire an error is google.rpc.Status with ErrorInfo{reason, domain "stateroom"}. Rejections of
arrivals are verdicts in an OK reply (rule A7), not errors. RESOURCE_EXHAUSTED stands for no reason of
ours: gRPC itself sends it for two other causes (facts M9, M12).
"""

from __future__ import annotations

from typing import NoReturn

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from stateroom.residency.reasons import ErrorReason, Refused

__all__ = ["CODE_BY_REASON", "DOMAIN", "StateroomError", "abort", "from_rpc_error"]

DOMAIN = "stateroom"

_C = grpc.StatusCode
CODE_BY_REASON: dict[ErrorReason, grpc.StatusCode] = {
    ErrorReason.INVALID_REQUEST: _C.INVALID_ARGUMENT,
    ErrorReason.SEQUENCE_ID_IN_USE: _C.ALREADY_EXISTS,
    ErrorReason.SEQUENCE_UNKNOWN: _C.NOT_FOUND,
    ErrorReason.TOO_MANY_TOKENS: _C.INVALID_ARGUMENT,
    ErrorReason.DEMAND_EXCEEDS_CAP: _C.FAILED_PRECONDITION,
    ErrorReason.QUEUE_FULL: _C.UNAVAILABLE,
    ErrorReason.WAIT_EXPIRED: _C.DEADLINE_EXCEEDED,
    ErrorReason.SESSION_UNKNOWN: _C.FAILED_PRECONDITION,
    ErrorReason.STALE_TERM: _C.FAILED_PRECONDITION,
    ErrorReason.TERM_TAKEN: _C.FAILED_PRECONDITION,
    ErrorReason.WRONG_BOOT_ID: _C.FAILED_PRECONDITION,
    ErrorReason.SEQUENCE_GAP: _C.FAILED_PRECONDITION,
    ErrorReason.SLOT_NOT_FREE: _C.FAILED_PRECONDITION,
    ErrorReason.SLOT_OUT_OF_RANGE: _C.OUT_OF_RANGE,
    ErrorReason.STALE_GENERATION: _C.FAILED_PRECONDITION,
    ErrorReason.NOT_BOUND: _C.FAILED_PRECONDITION,
    ErrorReason.NOT_COMMITTED: _C.FAILED_PRECONDITION,
    ErrorReason.NOT_READY: _C.UNAVAILABLE,
    ErrorReason.NOTHING_FITS: _C.FAILED_PRECONDITION,
    ErrorReason.QUOTA_EXCEEDED: _C.FAILED_PRECONDITION,
    ErrorReason.NUMBERS_DIFFER: _C.FAILED_PRECONDITION,
    ErrorReason.NO_POOL: _C.FAILED_PRECONDITION,
    ErrorReason.LAYOUT_DIFFERS: _C.FAILED_PRECONDITION,
    ErrorReason.POOL_ALLOCATION_FAILED: _C.FAILED_PRECONDITION,
    ErrorReason.STREAM_REPLACED: _C.ABORTED,
    ErrorReason.DRAINING: _C.UNAVAILABLE,
    ErrorReason.RANK_MISMATCH: _C.FAILED_PRECONDITION,
    ErrorReason.KV_EXCEEDS_POOL: _C.FAILED_PRECONDITION,
}


class StateroomError(Exception):
    """What the SDK raises for a refused call: `reason` from the catalogue, `message` for people.

    `reason` is None where the transport failed and no service of ours answered.
    """

    def __init__(self, reason: ErrorReason | None, message: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.code = code if code is not None or reason is None else CODE_BY_REASON[reason]


async def abort(context: grpc.aio.ServicerContext, refused: Refused) -> NoReturn:  # type: ignore[type-arg]
    """Ends the call with the catalogue's status for what a core refused."""
    status = status_pb2.Status(
        code=CODE_BY_REASON[refused.reason].value[0],
        message=refused.message,
    )
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=refused.reason.value, domain=DOMAIN))
    await context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort_with_status returned")


def from_rpc_error(error: grpc.aio.AioRpcError | grpc.RpcError) -> StateroomError:
    """The catalogue's error behind a failed call, sync or aio."""
    code = error.code() if hasattr(error, "code") else None
    details = (error.details() if hasattr(error, "details") else None) or str(code)
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # an aio error is a call too
    except ValueError:  # code and trailer disagree: a proxy's answer, not ours
        status = None
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN and info.reason in ErrorReason.__members__:
            return StateroomError(ErrorReason[info.reason], details, code)
    return StateroomError(None, details, code)

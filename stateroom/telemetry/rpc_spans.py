"""What a call's span says, by the present semantic conventions of rpc; shared by both sides.

Calls whose response is a stream (Step, Bind, WatchResidency, health Watch) live as long as their
connection and get no span of their own; what happens on them has spans by decision. Health and
reflection calls are polls and get none either.
"""

from __future__ import annotations

import grpc
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

__all__ = [
    "PROPAGATOR",
    "Method",
    "end_client_span",
    "end_server_span",
    "is_traced",
    "method_of",
    "start_attributes",
]

PROPAGATOR = TraceContextTextMapPropagator()
_UNTRACED_SERVICES = ("grpc.health.", "grpc.reflection.", "grpc.channelz.")
# Codes that are the server's own fault; the others tell the client something (semantic conventions of gRPC).
_SERVER_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
Method = str  # fully qualified, "stateroom.v1.CacheService/ResidencyQuery"


def method_of(path: str | bytes) -> Method:
    """The qualified name in a request path."""
    return (path.decode() if isinstance(path, bytes) else path).lstrip("/")


def is_traced(method: Method) -> bool:
    """False for polls."""
    return not method.startswith(_UNTRACED_SERVICES)


def start_attributes(method: Method) -> dict[str, AttributeValue]:
    """Attributes known before the call."""
    return {"rpc.system.name": "grpc", "rpc.method": method}


def end_client_span(span: Span, code: grpc.StatusCode) -> None:
    """Every code but OK is an error to the client."""
    _end(span, code, failed=code is not grpc.StatusCode.OK)


def end_server_span(span: Span, code: grpc.StatusCode) -> None:
    """Only the server's own faults are errors here (fact M23)."""
    _end(span, code, failed=code in _SERVER_FAULTS)


def _end(span: Span, code: grpc.StatusCode, *, failed: bool) -> None:
    span.set_attribute("rpc.response.status_code", code.name)
    if failed:
        span.set_attribute("error.type", code.name)
        span.set_status(Status(StatusCode.ERROR))
    span.end()

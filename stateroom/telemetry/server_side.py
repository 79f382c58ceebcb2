"""Server interceptor: a span a unary-response call, under the caller's traceparent.

A call without a traceparent makes none. Streams get the caller's context and no span. The context is attached and never detached: aio runs every
call in a task of its own, and detaching inside a generator that is abandoned fails (scenario O03).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from opentelemetry import trace
from opentelemetry.context import Context, attach
from opentelemetry.trace import SpanKind, Tracer

from stateroom.telemetry.rpc_spans import (
    PROPAGATOR,
    Method,
    end_server_span,
    is_traced,
    method_of,
    start_attributes,
)
from stateroom.telemetry.setup import Telemetry

__all__ = ["server_interceptors"]

if TYPE_CHECKING:  # the class is generic in its types only
    Handler = grpc.RpcMethodHandler[Any, Any]

Unary = Callable[[Any, Any], Awaitable[Any]]


def server_interceptors(telemetry: Telemetry) -> list[grpc.aio.ServerInterceptor]:
    """For `grpc.aio.server`."""
    return [_Server(telemetry.tracer)]


class _Server(grpc.aio.ServerInterceptor):
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method = method_of(handler_call_details.method)
        if handler is None or not is_traced(method):
            return handler
        parent = _parent(handler_call_details)
        if not trace.get_current_span(parent).get_span_context().is_valid:
            return handler
        attach(parent)
        if handler.response_streaming:
            return handler
        return _wrapped(handler, self._tracer, method, parent)


def _parent(details: grpc.HandlerCallDetails) -> Context:
    carrier = {
        key: value for key, value in details.invocation_metadata or () if key in ("traceparent", "tracestate")
    }
    return PROPAGATOR.extract(carrier, Context())


def _wrapped(handler: Handler, tracer: Tracer, method: Method, parent: Context) -> Handler:
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(
            _spanned(handler.stream_unary, tracer, method, parent),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
    return grpc.unary_unary_rpc_method_handler(
        _spanned(handler.unary_unary, tracer, method, parent),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _spanned(behaviour: Any, tracer: Tracer, method: Method, parent: Context) -> Unary:
    async def call(request: Any, context: Any) -> Any:
        span = tracer.start_span(
            method, context=parent, kind=SpanKind.SERVER, attributes=start_attributes(method)
        )
        attach(trace.set_span_in_context(span, parent))
        code = grpc.StatusCode.UNKNOWN  # what gRPC tells the client of a fault in a handler
        try:
            response = await behaviour(request, context)
            code = _code_of(context, grpc.StatusCode.OK)
            return response
        except asyncio.CancelledError:
            code = _code_of_cancel(context)
            raise
        except Exception:
            code = _code_of(context, grpc.StatusCode.UNKNOWN)
            raise
        finally:
            end_server_span(span, code)

    return call


def _code_of_cancel(context: Any) -> grpc.StatusCode:
    """aio cancels a handler for a client's cancel and for a passed deadline alike."""
    seconds_left = context.time_remaining()
    if seconds_left is not None and seconds_left <= 0:
        return grpc.StatusCode.DEADLINE_EXCEEDED
    return grpc.StatusCode.CANCELLED


def _code_of(context: Any, otherwise: grpc.StatusCode) -> grpc.StatusCode:
    """The code the handler set or aborted with; aio gives it as a number."""
    set_code = context.code()
    if not set_code or set_code is grpc.StatusCode.OK:
        return otherwise
    if isinstance(set_code, grpc.StatusCode):
        return set_code
    return next((code for code in grpc.StatusCode if code.value[0] == set_code), otherwise)

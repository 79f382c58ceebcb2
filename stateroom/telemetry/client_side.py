"""Client interceptors: a span a unary-response call under the caller's span, and its traceparent in the
metadata. A call under no span makes none: nobody asked for a trace of it.

The call object is passed on at once and its span ends in its done callback: an interceptor that awaits
`call.code()` keeps a cancel from reaching the server (fact M1). There is no interceptor for streams
both ways: with one, aio sends every write through a queue and a task of its own, and the messages of
our two streams carry traceparents themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.trace import Span, SpanKind, Tracer

from stateroom.telemetry.rpc_spans import (
    PROPAGATOR,
    end_client_span,
    is_traced,
    method_of,
    start_attributes,
)
from stateroom.telemetry.setup import Telemetry

__all__ = ["client_interceptors"]

Continuation = Callable[[grpc.aio.ClientCallDetails, Any], Awaitable[Any]]


def client_interceptors(telemetry: Telemetry) -> list[grpc.aio.ClientInterceptor]:
    """For `open_channel`; one object a kind of call, as aio sorts them by type."""
    tracer = telemetry.tracer
    return [_UnaryUnary(tracer), _StreamUnary(tracer), _UnaryStream()]


class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def intercept_unary_unary(
        self, continuation: Continuation, client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await _traced(self._tracer, continuation, client_call_details, request)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def intercept_stream_unary(
        self,
        continuation: Continuation,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await _traced(self._tracer, continuation, client_call_details, request_iterator)


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    """No span, only the context."""

    async def intercept_unary_stream(
        self, continuation: Continuation, client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(_with_traceparent(client_call_details, None), request)


async def _traced(
    tracer: Tracer, continuation: Continuation, details: grpc.aio.ClientCallDetails, request: Any
) -> Any:
    method = method_of(details.method)
    if not is_traced(method) or not trace.get_current_span().get_span_context().is_valid:
        return await continuation(details, request)
    span = tracer.start_span(method, kind=SpanKind.CLIENT, attributes=start_attributes(method))
    handed_over = False
    try:
        call = await continuation(_with_traceparent(details, span), request)
        if isinstance(call, grpc.aio.Call):
            call.add_done_callback(_Finish(span))
            handed_over = True
        return call
    except asyncio.CancelledError:
        span.set_attribute("rpc.response.status_code", grpc.StatusCode.CANCELLED.name)
        raise
    finally:
        if not handed_over:  # another interceptor answered by itself, or there was no call at all
            span.end()


class _Finish:
    """Ends the span of a call that is done; its code is there by then, so nothing is waited for."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __call__(self, call: Any) -> None:
        asking = call.code()
        try:
            asking.send(None)
        except StopIteration as answered:
            end_client_span(self._span, answered.value)
            return
        asking.close()
        end_client_span(self._span, grpc.StatusCode.UNKNOWN)


def _with_traceparent(details: grpc.aio.ClientCallDetails, span: Span | None) -> grpc.aio.ClientCallDetails:
    context = get_current() if span is None else trace.set_span_in_context(span)
    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier, context)
    if not carrier:
        return details
    metadata = grpc.aio.Metadata(*(details.metadata or ()), *carrier.items())
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )

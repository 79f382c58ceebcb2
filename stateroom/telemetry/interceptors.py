"""Our own small gRPC interceptors on the OpenTelemetry API, for asyncio clients and servers.

The contrib package loses cancelled calls and stops a client's cancel from reaching the server (facts
M1, O02, O03). Here a client call is passed on at once and its span is ended by the call's own done
callback; a server's span is ended in `finally`. Long-lived streams carry the context and make no span.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stateroom.telemetry.setup import Telemetry

__all__ = ["client_interceptors", "server_interceptors"]

_PROPAGATOR = TraceContextTextMapPropagator()


def client_interceptors(telemetry: Telemetry) -> list[grpc.aio.ClientInterceptor]:
    """For stateroom.channel.open_channel: a client span a unary call, under the current span."""
    return [_ClientUnary(telemetry.tracer)]


def server_interceptors(telemetry: Telemetry) -> list[grpc.aio.ServerInterceptor]:
    """For grpc.aio.server: a server span a unary call, under the caller's span."""
    return [_ServerUnary(telemetry.tracer)]


def _attributes(method: str) -> dict[str, str]:
    return {"rpc.system.name": "grpc", "rpc.method": method.lstrip("/")}


def _end(span: Span, code: grpc.StatusCode, *, is_error: bool) -> None:
    span.set_attribute("rpc.status_code", code.name)
    if is_error:
        span.set_attribute("error.type", code.name)
        span.set_status(Status(StatusCode.ERROR))
    span.end()


class _ClientUnary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._ending: set[asyncio.Task[None]] = set()

    async def intercept_unary_unary(
        self,
        continuation: Callable[..., Awaitable[Any]],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        method = client_call_details.method
        name = method.decode() if isinstance(method, bytes) else method
        if not trace.get_current_span().get_span_context().is_valid:
            return await continuation(client_call_details, request)  # nobody asked for a trace of it
        span = self._tracer.start_span(name.lstrip("/"), kind=SpanKind.CLIENT, attributes=_attributes(name))
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
        metadata = [*(client_call_details.metadata or ()), *carrier.items()]
        details = grpc.aio.ClientCallDetails(
            method=client_call_details.method,
            timeout=client_call_details.timeout,
            metadata=grpc.aio.Metadata(*metadata),
            credentials=client_call_details.credentials,
            wait_for_ready=client_call_details.wait_for_ready,
        )
        try:
            call = await continuation(details, request)
        except BaseException:
            _end(span, grpc.StatusCode.CANCELLED, is_error=True)
            raise
        call.add_done_callback(lambda done: self._done(span, done))
        return call

    def _done(self, span: Span, call: Any) -> None:
        """The call is over, however it ended; its code is only asked for now (fact M1)."""
        task = asyncio.ensure_future(self._end_with_code(span, call))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    @staticmethod
    async def _end_with_code(span: Span, call: Any) -> None:
        code = grpc.StatusCode.CANCELLED if call.cancelled() else await call.code()
        _end(span, code, is_error=code is not grpc.StatusCode.OK)


class _ServerUnary(grpc.aio.ServerInterceptor):
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        carrier = {k: v for k, v in handler_call_details.invocation_metadata or () if isinstance(v, str)}
        if (
            handler is None
            or handler.request_streaming
            or handler.response_streaming
            or "traceparent" not in carrier
        ):
            return handler
        parent = _PROPAGATOR.extract(carrier, Context())
        method = handler_call_details.method

        async def traced(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            return await self._call(handler.unary_unary, request, context, method, parent)

        return grpc.unary_unary_rpc_method_handler(
            traced, handler.request_deserializer, handler.response_serializer
        )

    async def _call(
        self,
        behaviour: Callable[..., Awaitable[Any]],
        request: Any,
        context: grpc.aio.ServicerContext[Any, Any],
        method: str,
        parent: Context,
    ) -> Any:
        span = self._tracer.start_span(
            method.lstrip("/"), context=parent, kind=SpanKind.SERVER, attributes=_attributes(method)
        )
        code = grpc.StatusCode.UNKNOWN
        try:
            with trace.use_span(
                span, end_on_exit=False, record_exception=False, set_status_on_exception=False
            ):
                response = await behaviour(request, context)
            code = grpc.StatusCode.OK
            return response
        except BaseException:
            set_code = context.code()
            code = _status_code(set_code) or grpc.StatusCode.CANCELLED
            raise
        finally:
            _end(span, code, is_error=code is not grpc.StatusCode.OK)


def _status_code(code: Any) -> grpc.StatusCode | None:
    """What abort set, as a StatusCode; grpc.aio keeps it as a number or as the enum."""
    if isinstance(code, grpc.StatusCode):
        return code if code is not grpc.StatusCode.OK else None
    return next((c for c in grpc.StatusCode if c.value[0] == code and code != 0), None)

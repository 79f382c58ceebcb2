"""A real local aio server without protos: three methods of bytes, and telemetry kept in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stateroom.telemetry import Telemetry, client_interceptors, server_interceptors

SERVICE = "stateroom.test.Wire"


class Spans:
    """Telemetry of one service whose spans stay here."""

    def __init__(self, service_name: str) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(provider.get_tracer("test"), provider)

    def only(self) -> ReadableSpan:
        """The one span there is."""
        (span,) = self.exporter.get_finished_spans()
        return span


@dataclass
class Wire:
    """Channel to the server, both sides' spans, and what the handlers saw."""

    channel: grpc.aio.Channel
    client: Spans
    server: Spans
    handler_began: asyncio.Event = field(default_factory=asyncio.Event)
    handler_cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    seen_trace_ids: list[int] = field(default_factory=list)

    def unary(self, method: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        return self.channel.unary_unary(f"/{SERVICE}/{method}")


@asynccontextmanager
async def wire(folder: Path) -> AsyncIterator[Wire]:
    client, server_spans = Spans("client"), Spans("server")
    server = grpc.aio.server(interceptors=server_interceptors(server_spans.telemetry))
    address = f"unix:{folder}/wire.sock"
    channel = grpc.aio.insecure_channel(address, interceptors=client_interceptors(client.telemetry))
    made = Wire(channel, client, server_spans)
    server.add_generic_rpc_handlers((_handlers(made),))
    server.add_insecure_port(address)
    await server.start()
    try:
        yield made
    finally:
        await channel.close()
        await server.stop(None)


def _handlers(wire: Wire) -> grpc.GenericRpcHandler:
    async def echo(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        wire.seen_trace_ids.append(trace.get_current_span().get_span_context().trace_id)
        return request

    async def hang(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        wire.handler_began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            wire.handler_cancelled.set()
            raise
        return request

    async def refuse(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no")
        return request

    async def crash(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        raise RuntimeError("a bug")

    async def add(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> bytes:
        return b"".join([request async for request in requests])

    async def count(request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        wire.seen_trace_ids.append(trace.get_current_span().get_span_context().trace_id)
        for number in range(3):
            yield bytes([number])

    async def both(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Echo": grpc.unary_unary_rpc_method_handler(echo),
            "Hang": grpc.unary_unary_rpc_method_handler(hang),
            "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
            "Crash": grpc.unary_unary_rpc_method_handler(crash),
            "Add": grpc.stream_unary_rpc_method_handler(add),
            "Count": grpc.unary_stream_rpc_method_handler(count),
            "Both": grpc.stream_stream_rpc_method_handler(both),
        },
    )

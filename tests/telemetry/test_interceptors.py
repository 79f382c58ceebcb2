"""Our interceptors over a real local server: span trees, codes, and cancels that arrive (fact M1)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.telemetry.wire import SERVICE, Wire, wire

SOON = 5.0


async def test_client_and_server_spans_make_one_tree(tmp_path: Path) -> None:
    async with wire(tmp_path) as w:
        with w.client.telemetry.tracer.start_as_current_span("caller") as caller:
            assert await w.unary("Echo")(b"x") == b"x"
    client, caller_span = w.client.exporter.get_finished_spans()
    server = w.server.only()
    assert (client.name, client.kind) == (f"{SERVICE}/Echo", SpanKind.CLIENT)
    assert (server.name, server.kind) == (f"{SERVICE}/Echo", SpanKind.SERVER)
    assert client.parent is not None
    assert client.parent.span_id == caller_span.context.span_id
    assert server.parent is not None
    assert server.parent.span_id == client.context.span_id
    trace_id = caller.get_span_context().trace_id
    assert {span.context.trace_id for span in (client, server)} == {trace_id} == set(w.seen_trace_ids)
    for span in (client, server):
        assert dict(span.attributes or {}) == {
            "rpc.system.name": "grpc",
            "rpc.method": f"{SERVICE}/Echo",
            "rpc.response.status_code": "OK",
        }


@pytest.mark.parametrize("stop", ["task_cancel", "wait_for", "call_cancel"], ids=lambda how: f"m1_by_{how}")
async def test_m1_a_cancel_reaches_the_server_and_both_spans_end(tmp_path: Path, stop: str) -> None:
    async with wire(tmp_path) as w:
        with w.client.telemetry.tracer.start_as_current_span("caller"):
            call = w.unary("Hang")(b"x")
            waiting = asyncio.ensure_future(_ask(call))
            await asyncio.wait_for(w.handler_began.wait(), SOON)
            if stop == "task_cancel":
                waiting.cancel()
            elif stop == "call_cancel":
                call.cancel()
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waiting, 0.01)
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await asyncio.wait_for(w.handler_cancelled.wait(), SOON)
        client = await _first(w.client.exporter.get_finished_spans, f"{SERVICE}/Hang")
        server = await _first(w.server.exporter.get_finished_spans, f"{SERVICE}/Hang")
    for span in (client, server):
        assert (span.attributes or {})["rpc.response.status_code"] == "CANCELLED"


async def _ask(call: grpc.aio.UnaryUnaryCall) -> bytes:
    return await call


async def _first(spans, name):
    for _ in range(500):
        found = [span for span in spans() if span.name == name]
        if found:
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError(f"no span {name} ended")


async def test_a_deadline_shows_as_deadline_on_both_sides(tmp_path: Path) -> None:
    async with wire(tmp_path) as w:
        span = w.client.telemetry.tracer.start_as_current_span("caller")
        with span, pytest.raises(grpc.aio.AioRpcError) as caught:
            await w.unary("Hang")(b"x", timeout=0.1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        server = await _first(w.server.exporter.get_finished_spans, f"{SERVICE}/Hang")
    client = w.client.exporter.get_finished_spans()[0]
    assert (client.attributes or {})["error.type"] == "DEADLINE_EXCEEDED"
    assert (server.attributes or {})["error.type"] == "DEADLINE_EXCEEDED"


async def test_m23_a_refusal_is_the_clients_error_and_a_crash_is_everybodys(tmp_path: Path) -> None:
    async with wire(tmp_path) as w:
        with w.client.telemetry.tracer.start_as_current_span("caller"):
            for method in ("Refuse", "Crash"):
                with pytest.raises(grpc.aio.AioRpcError):
                    await w.unary(method)(b"x")
    told = {
        (side, span.name.rpartition("/")[2]): (
            (span.attributes or {})["rpc.response.status_code"],
            span.status.status_code,
        )
        for side, spans in (("client", w.client), ("server", w.server))
        for span in spans.exporter.get_finished_spans()
        if span.name != "caller"
    }
    assert told == {
        ("client", "Refuse"): ("FAILED_PRECONDITION", StatusCode.ERROR),
        ("server", "Refuse"): ("FAILED_PRECONDITION", StatusCode.UNSET),
        ("client", "Crash"): ("UNKNOWN", StatusCode.ERROR),
        ("server", "Crash"): ("UNKNOWN", StatusCode.ERROR),
    }


async def test_streams_carry_the_context_and_make_no_span(tmp_path: Path) -> None:
    async with wire(tmp_path) as w:
        with w.client.telemetry.tracer.start_as_current_span("caller") as caller:
            counted = [m async for m in w.channel.unary_stream(f"/{SERVICE}/Count")(b"x")]
            both = w.channel.stream_stream(f"/{SERVICE}/Both")()
            await both.write(b"1")
            assert await both.read() == b"1"
            await both.done_writing()
    assert counted == [b"\0", b"\1", b"\2"]
    assert w.seen_trace_ids == [caller.get_span_context().trace_id]
    assert [span.name for span in w.client.exporter.get_finished_spans()] == ["caller"]
    assert not w.server.exporter.get_finished_spans()


async def test_a_stream_of_requests_with_one_response_has_both_spans(tmp_path: Path) -> None:
    async def parts():
        yield b"a"
        yield b"b"

    async with wire(tmp_path) as w:
        with w.client.telemetry.tracer.start_as_current_span("caller"):
            assert await w.channel.stream_unary(f"/{SERVICE}/Add")(parts()) == b"ab"
    assert w.server.only().name == f"{SERVICE}/Add"
    assert w.client.exporter.get_finished_spans()[0].kind is SpanKind.CLIENT


async def test_a_call_under_no_span_makes_none(tmp_path: Path) -> None:
    async with wire(tmp_path) as w:
        await w.unary("Echo")(b"x")
    assert not w.client.exporter.get_finished_spans()
    assert not w.server.exporter.get_finished_spans()


async def test_an_absent_server_ends_the_span_with_its_code(tmp_path: Path) -> None:
    async with wire(tmp_path) as w:
        absent = _absent(w, tmp_path)
        span = w.client.telemetry.tracer.start_as_current_span("caller")
        with span, pytest.raises(grpc.aio.AioRpcError):
            await absent.unary_unary(f"/{SERVICE}/Echo")(b"x")
        await absent.close()
    client = w.client.exporter.get_finished_spans()[0]
    assert (client.attributes or {})["error.type"] == "UNAVAILABLE"


def _absent(w: Wire, folder: Path) -> grpc.aio.Channel:
    from stateroom.telemetry import client_interceptors

    return grpc.aio.insecure_channel(
        f"unix:{folder}/nobody.sock", interceptors=client_interceptors(w.client.telemetry)
    )

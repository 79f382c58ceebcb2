"""Where spans go, what is counted, and that nothing of it ever blocks (facts M17, M18, M20)."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from stateroom.telemetry import TraceFileError, setup_telemetry
from stateroom.telemetry.batching import BatchingProcessor


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def _read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_span_is_one_json_line_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.jsonl"
    telemetry = setup_telemetry("svc", trace_file=path, instance="a")
    parent = telemetry.tracer.start_span("admission", attributes={"ranks": [0, 3], "cap": 4}, start_time=1)
    other = telemetry.tracer.start_span("holder", start_time=1)
    parent.add_event("waits", {"reason": "RESIDENCY_CAP"}, timestamp=2)
    parent.add_link(other.get_span_context(), {"why": "holder"})
    child = telemetry.tracer.start_span("bind", trace.set_span_in_context(parent, Context()), start_time=2)
    for span in (child, other, parent):
        span.end(3)
    telemetry.shutdown()
    bind, holder, admission = _read(path)
    assert bind["parent_span_id"] == admission["span_id"]
    assert bind["trace_id"] == admission["trace_id"]
    assert admission["parent_span_id"] == ""
    assert (admission["start_unix_ns"], admission["end_unix_ns"]) == (1, 3)
    assert admission["attributes"] == {"ranks": [0, 3], "cap": 4}
    assert admission["events"] == [{"name": "waits", "unix_ns": 2, "attributes": {"reason": "RESIDENCY_CAP"}}]
    assert admission["links"] == [
        {"trace_id": holder["trace_id"], "span_id": holder["span_id"], "attributes": {"why": "holder"}}
    ]
    assert admission["status"] == {"code": "UNSET", "description": ""}
    assert admission["resource"]["service.name"] == "svc"
    assert admission["resource"]["service.instance.id"] == "a"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_services_of_one_process_share_nothing_but_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    one, two = (setup_telemetry(name, trace_file=path) for name in ("one", "two"))
    for telemetry in (one, two):
        telemetry.tracer.start_span("s").end()
    one.shutdown()
    two.tracer.start_span("later").end()
    two.shutdown()
    assert sorted(line["resource"]["service.name"] for line in _read(path)) == ["one", "two", "two"]
    assert not isinstance(trace.get_tracer_provider(), TracerProvider)


def test_without_file_and_collector_spans_go_nowhere() -> None:
    telemetry = setup_telemetry("svc")
    telemetry.tracer.start_span("s").end()
    telemetry.shutdown()
    assert telemetry.dropped_spans_count == 0


def test_m17_a_missing_collector_blocks_nothing_and_what_it_missed_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    telemetry = setup_telemetry("svc", trace_file=tmp_path / "unused.jsonl")
    began = time.monotonic()
    for _ in range(700):
        telemetry.tracer.start_span("s").end()
    assert time.monotonic() - began < 1.0
    began = time.monotonic()
    telemetry.shutdown()
    assert time.monotonic() - began < 4.0
    assert telemetry.dropped_spans_count > 0
    assert not (tmp_path / "unused.jsonl").exists()


class _Gate(SpanExporter):
    """An exporter that is stuck until it is let go."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.count = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.open.wait(10)
        self.count += len(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.open.set()


def _through(processor: BatchingProcessor) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


def test_m18_what_the_queue_has_no_room_for_is_counted() -> None:
    gate = _Gate()
    processor = BatchingProcessor(gate, queue_spans_max=10, delay_seconds=0.0)
    tracer = _through(processor).get_tracer("t")
    tracer.start_span("first").end()
    assert gate.entered.wait(5)
    for _ in range(25):
        tracer.start_span("s").end()
    assert processor.dropped_spans_count == 15
    gate.open.set()
    assert processor.force_flush()
    assert gate.count == 11
    processor.shutdown()
    tracer.start_span("late").end()
    assert processor.dropped_spans_count == 16


def test_a_stuck_exporter_holds_a_shutdown_no_longer_than_its_limit() -> None:
    gate = _Gate()
    processor = BatchingProcessor(gate, queue_spans_max=10, delay_seconds=0.0, shutdown_seconds_max=0.05)
    tracer = _through(processor).get_tracer("t")
    tracer.start_span("first").end()
    assert gate.entered.wait(5)
    for _ in range(3):
        tracer.start_span("s").end()
    began = time.monotonic()
    processor.shutdown()
    assert time.monotonic() - began < 2.0
    assert processor.dropped_spans_count == 3


def test_an_exporter_that_fails_is_counted_and_asked_again() -> None:
    class Failing(_Gate):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            raise OSError("disk full")

    processor = BatchingProcessor(Failing(), delay_seconds=0.0)
    tracer = _through(processor).get_tracer("t")
    for expected in (1, 2):
        tracer.start_span("s").end()
        assert processor.force_flush()
        assert processor.dropped_spans_count == expected
    processor.shutdown()


def test_a_trace_file_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceFileError, match=r"trace file '.*file/t.jsonl' cannot be written \(.*\): give"):
        setup_telemetry("svc", trace_file=tmp_path / "file" / "t.jsonl")

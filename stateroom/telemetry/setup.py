"""Makes a tracer provider for one process or one test; nothing global, nothing at import.

OTLP where OTEL_EXPORTER_OTLP_ENDPOINT is set, else JSON lines to a file, else nothing is kept. Spans
are exported by a batch thread with a bounded queue: a collector that is down or slow never blocks a
step (fact M17), and what the queue had no room for is counted and said once (fact M18).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import structlog
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Tracer

from stateroom.telemetry.jsonl_exporter import JsonLinesExporter

__all__ = ["CountingBatchProcessor", "Telemetry", "setup_telemetry"]

QUEUE_SPANS_MAX = 16_384  # two seconds of the densest replay (8,000 admissions a second)
EXPORT_SPANS_MAX = 512
EXPORT_EVERY_MS = 500
SHUTDOWN_SECONDS_MAX = 2.0


@dataclass(frozen=True)
class Telemetry:
    """One provider and its tracer; `processor` counts what was dropped, None if nothing is exported."""

    tracer: Tracer
    provider: TracerProvider
    processor: CountingBatchProcessor | None = None

    def shutdown(self) -> None:
        """Exports what is pending, within SHUTDOWN_SECONDS_MAX."""
        if self.processor is not None:
            self.processor.force_flush(int(SHUTDOWN_SECONDS_MAX * 1000))
        self.provider.shutdown()


class CountingBatchProcessor(SpanProcessor):
    """The SDK's batch processor; spans beyond its queue are counted instead of lost in silence."""

    def __init__(self, exporter: SpanExporter, queue_spans_max: int = QUEUE_SPANS_MAX) -> None:
        self.ended_count = 0
        self.dropped_count = 0
        self._queue_spans_max = queue_spans_max
        self._counter = _CountingExporter(exporter)
        self._batch = BatchSpanProcessor(
            self._counter,
            max_queue_size=queue_spans_max,
            schedule_delay_millis=EXPORT_EVERY_MS,
            max_export_batch_size=min(EXPORT_SPANS_MAX, queue_spans_max),
            export_timeout_millis=SHUTDOWN_SECONDS_MAX * 1000,
        )

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queues it if there is room."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self.ended_count - self._counter.taken_count >= self._queue_spans_max:
            self._drop()
            return
        self.ended_count += 1
        self._batch.on_end(span)

    def _drop(self) -> None:
        if not self.dropped_count:
            structlog.get_logger().warning(
                "spans are dropped: the exporter is slower than they come",
                queue_spans_max=self._queue_spans_max,
            )
        self.dropped_count += 1

    def shutdown(self) -> None:
        """Ends the batch thread."""
        self._batch.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Exports what is queued."""
        return self._batch.force_flush(timeout_millis)


class _CountingExporter(SpanExporter):
    def __init__(self, exporter: SpanExporter) -> None:
        self.taken_count = 0
        self._exporter = exporter

    def export(self, spans):  # type: ignore[no-untyped-def]
        self.taken_count += len(spans)
        return self._exporter.export(spans)

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def setup_telemetry(service_name: str, *, trace_file: Path | None = None, instance: str = "") -> Telemetry:
    """A provider of its own for `service_name`; `instance` tells processes of one service apart."""
    resource = Resource.create(
        {"service.name": service_name, "service.instance.id": instance or service_name}
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = _exporter(trace_file)
    processor = CountingBatchProcessor(exporter) if exporter is not None else None
    if processor is not None:
        provider.add_span_processor(processor)
    return Telemetry(provider.get_tracer("stateroom"), provider, processor)


def _exporter(trace_file: Path | None) -> SpanExporter | None:
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(timeout=1)
    return JsonLinesExporter(trace_file) if trace_file is not None else None

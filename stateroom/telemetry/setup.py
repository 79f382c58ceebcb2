"""One TracerProvider a call, and where its spans go: OTLP, a JSON-lines file, or nowhere."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import Tracer

from stateroom.telemetry.batching import BatchingProcessor
from stateroom.telemetry.jsonl_exporter import JsonLinesExporter

__all__ = ["Telemetry", "setup_telemetry"]

SCOPE = "stateroom"
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A service's traces. `tracer` starts spans; `shutdown` must be called at the end."""

    tracer: Tracer
    provider: TracerProvider
    _processor: BatchingProcessor | None = None

    @property
    def dropped_spans_count(self) -> int:
        """Ended spans that were not exported: queue full, collector down, disk full."""
        return self._processor.dropped_spans_count if self._processor is not None else 0

    def flush(self, seconds_max: float = 2.0) -> bool:
        """Waits until every ended span has left; False if that takes longer."""
        return self._processor is None or self._processor.force_flush(int(1000 * seconds_max))

    def shutdown(self) -> None:
        """Exports what is left, in at most about 2 s whatever the collector does (fact M17)."""
        self.provider.shutdown()


def setup_telemetry(service_name: str, *, trace_file: Path | None = None, instance: str = "") -> Telemetry:
    """Makes a provider of its own for one service; no global is set.

    Spans go by OTLP over gRPC where OTEL_EXPORTER_OTLP_ENDPOINT is set, else as JSON lines to
    `trace_file`, else nowhere. `instance` becomes service.instance.id. Errors: TraceFileError.
    """
    attributes = {"service.name": service_name}
    if instance:
        attributes["service.instance.id"] = instance
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    exporter = _exporter(trace_file)
    processor = None
    if exporter is not None:
        processor = BatchingProcessor(exporter)
        provider.add_span_processor(processor)
    return Telemetry(provider.get_tracer(SCOPE), provider, processor)


def _exporter(trace_file: Path | None) -> SpanExporter | None:
    if any(os.environ.get(variable) for variable in ENDPOINT_VARIABLES):
        # costs 0.2 s to import, so only where it is used
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    return JsonLinesExporter(trace_file) if trace_file is not None else None

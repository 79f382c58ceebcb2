"""Spans as JSON lines in a file: what `stateroom why` reads where there is no collector.

One object a span: trace_id, span_id, parent_span_id, name, kind, start_ns, end_ns, attributes, events,
links, status, service. Lines are appended whole, so several processes may share a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

__all__ = ["JsonLinesExporter", "span_as_dict"]


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in (attributes or {}).items()}


def _ids(context: SpanContext | None) -> dict[str, str]:
    assert context is not None, "a span without a context was exported"
    return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}


def span_as_dict(span: ReadableSpan) -> dict[str, Any]:
    """A finished span as plain data."""
    return {
        **_ids(span.get_span_context()),
        "parent_span_id": format_span_id(span.parent.span_id) if span.parent else None,
        "name": span.name,
        "kind": span.kind.name,
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "attributes": _plain(span.attributes),
        "events": [
            {"name": e.name, "time_ns": e.timestamp, "attributes": _plain(e.attributes)} for e in span.events
        ],
        "links": [{**_ids(link.context), "attributes": _plain(link.attributes)} for link in span.links],
        "status": {"code": span.status.status_code.name, "message": span.status.description or ""},
        "service": span.resource.attributes.get("service.name"),
    }


class JsonLinesExporter(SpanExporter):
    """Appends to `path`, which is made with its folder; readable by its owner only."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """One write for all: appends of one call are not interleaved with another process's."""
        lines = [json.dumps(span_as_dict(span), separators=(",", ":")) for span in spans]
        try:
            os.write(self._fd, ("\n".join(lines) + "\n").encode())
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Closes the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

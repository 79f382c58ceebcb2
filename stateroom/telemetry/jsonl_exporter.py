"""Spans as JSON lines in a file, one object a span; `stateroom why --trace` reads them.

    {"trace_id": "…32 hex…", "span_id": "…16 hex…", "parent_span_id": "… or empty", "name": "admission",
     "kind": "INTERNAL", "start_unix_ns": 1, "end_unix_ns": 2, "attributes": {…},
     "events": [{"name", "unix_ns", "attributes"}], "links": [{"trace_id", "span_id", "attributes"}],
     "dropped_events_count": 0, "status": {"code": "UNSET", "description": ""},
     "resource": {"service.name": …}}

A batch is one write to a file opened for appending, so several processes may share it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import format_span_id, format_trace_id

__all__ = ["JsonLinesExporter", "TraceFileError", "span_object"]


class TraceFileError(OSError):
    """The trace file cannot be written; one sentence with path, cause and remedy."""


class JsonLinesExporter(SpanExporter):
    """Appends to `path`, made with mode 0600 (sequence ids are nobody else's business)."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TraceFileError(
                f"trace file {str(path)!r} cannot be written ({error.strerror}): give --trace-file another path"
            ) from None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Writes one line a span."""
        text = "".join(json.dumps(span_object(span), separators=(",", ":")) + "\n" for span in spans)
        data = text.encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:  # disk full, or closed by a shutdown that had no time left
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def span_object(span: ReadableSpan) -> dict[str, object]:
    """The object of one line."""
    context, parent = span.context, span.parent
    assert context is not None, f"span {span.name} has no context"
    return {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
        "parent_span_id": format_span_id(parent.span_id) if parent is not None else "",
        "name": span.name,
        "kind": span.kind.name,
        "start_unix_ns": span.start_time,
        "end_unix_ns": span.end_time,
        "attributes": _plain(span.attributes),
        "events": [
            {"name": event.name, "unix_ns": event.timestamp, "attributes": _plain(event.attributes)}
            for event in span.events
        ],
        "links": [
            {
                "trace_id": format_trace_id(link.context.trace_id),
                "span_id": format_span_id(link.context.span_id),
                "attributes": _plain(link.attributes),
            }
            for link in span.links
        ],
        "dropped_events_count": span.dropped_events,
        "status": {"code": span.status.status_code.name, "description": span.status.description or ""},
        "resource": _plain(span.resource.attributes),
    }


def _plain(attributes: Mapping[str, object] | None) -> dict[str, object]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in (attributes or {}).items()
    }

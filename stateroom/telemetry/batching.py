"""Spans leave on a thread of their own, in batches, from a queue with a limit.

The SDK's BatchSpanProcessor drops the oldest spans without a word (fact M18) and its shutdown waits as
long as its exporter retries (M17). Here what is dropped is counted, and a shutdown has a limit.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import structlog
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

__all__ = ["BatchingProcessor"]

QUEUE_SPANS_MAX = 8192  # 2 s of 4,000 admissions a second; about 16 MiB
BATCH_SPANS_MAX = 512
DELAY_SECONDS = 0.5  # `stateroom why` reads the file of a running group: keep it fresh
SHUTDOWN_SECONDS_MAX = 2.0


class BatchingProcessor(SpanProcessor):
    """Hands ended spans to `exporter`. `on_end` never blocks; `shutdown` takes at most its limit."""

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        queue_spans_max: int = QUEUE_SPANS_MAX,
        delay_seconds: float = DELAY_SECONDS,
        shutdown_seconds_max: float = SHUTDOWN_SECONDS_MAX,
    ) -> None:
        self._exporter = exporter
        self._queue_spans_max = queue_spans_max
        self._delay_seconds = delay_seconds
        self._shutdown_seconds_max = shutdown_seconds_max
        self._queue: deque[ReadableSpan] = deque()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)  # told when the queue is empty and nothing is exporting
        self._exporting = False
        self._wake = threading.Event()
        self._stopping = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="stateroom-spans", daemon=True)
        self._thread.start()

    @property
    def dropped_spans_count(self) -> int:
        """Spans that were ended and will never be exported."""
        with self._lock:
            return self._dropped

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queues a sampled span, or counts it as dropped."""
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return
        with self._lock:
            taken = not self._stopping and len(self._queue) < self._queue_spans_max
            if taken:
                self._queue.append(span)
            full = len(self._queue) >= min(BATCH_SPANS_MAX, self._queue_spans_max)
        if full:
            self._wake.set()
        if not taken:
            self._drop(1, "the queue is full" if full else "it came after the end")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Waits until everything queued was handed over; False if it takes longer."""
        deadline = time.monotonic() + timeout_millis / 1000
        self._wake.set()
        with self._idle:
            while self._queue or self._exporting:
                if not self._idle.wait(max(0.0, deadline - time.monotonic())):
                    return False
        return True

    def shutdown(self) -> None:
        """Exports what it can inside the limit; the rest is counted as dropped."""
        with self._lock:
            self._stopping = True
        self._wake.set()
        self._thread.join(self._shutdown_seconds_max)
        with self._lock:
            left = len(self._queue)
            self._queue.clear()
        if left:
            self._drop(left, "the exporter did not take them in time")
        self._exporter.shutdown()  # also ends a retry that is still going on

    def _run(self) -> None:
        while True:
            self._wake.wait(self._delay_seconds)
            self._wake.clear()
            while batch := self._take():
                self._export(batch)
            with self._lock:
                if self._stopping and not self._queue:
                    return

    def _take(self) -> list[ReadableSpan]:
        with self._lock:
            count = min(BATCH_SPANS_MAX, len(self._queue))
            self._exporting = count > 0
            if not count:
                self._idle.notify_all()
            return [self._queue.popleft() for _ in range(count)]

    def _export(self, batch: list[ReadableSpan]) -> None:
        try:
            done = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:  # an exporter's fault must not end the thread
            done = False
        if not done:
            self._drop(len(batch), "the exporter failed")

    def _drop(self, spans_count: int, why: str) -> None:
        with self._lock:
            first = not self._dropped
            self._dropped += spans_count
        if first:  # said once, counted always
            structlog.get_logger().warning("spans are dropped", why=why)

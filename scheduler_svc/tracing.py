"""Spans of a group, made from the core's effects at the edge (section 7; names are a closed set).

`admission` starts when a sequence arrives and ends at admitted | rejected | expired | cancelled, under
the caller's span; `bind` is its child from the choice of the slot to the last rank's confirmation;
`residency.agree` has a child a rank. Attributes say cap, residents, limiting rank, time by reason.
"""

from __future__ import annotations

import time

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from scheduler_svc.core.effects import AdmissionEnded, AdmissionStarted, GroupChanged
from stateroom.residency.answer import Answer, Bounded, Unbounded, describe

__all__ = ["AdmissionSpans", "AgreementSpans"]

_PROPAGATOR = TraceContextTextMapPropagator()
_FAILED = ("rejected", "expired")
_MS = 1_000_000  # ns
CONTEXTS_KEPT = 8192  # span contexts of admitted sequences, to link to


class AdmissionSpans:
    """One open span a waiting or binding sequence."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[str, Span] = {}
        self._contexts: dict[str, SpanContext] = {}

    def started(self, effect: AdmissionStarted) -> None:
        """A sequence arrived."""
        parent = _PROPAGATOR.extract({"traceparent": effect.traceparent}) if effect.traceparent else Context()
        self._open[effect.sequence_id] = self._tracer.start_span(
            "admission",
            context=parent,
            attributes={
                "stateroom.sequence.id": effect.sequence_id,
                "stateroom.demand": effect.demand,
                "stateroom.queue.position": effect.position,
            },
        )

    def ended(self, effect: AdmissionEnded) -> None:
        """The wait is over, one way or the other."""
        span = self._open.pop(effect.sequence_id, None)
        if span is None:
            return
        self._remember(effect.sequence_id, span.get_span_context())
        if span.is_recording():
            self._describe(span, effect)
        span.end()

    def _remember(self, sequence_id: str, context: SpanContext) -> None:
        self._contexts[sequence_id] = context
        if len(self._contexts) > CONTEXTS_KEPT:
            del self._contexts[next(iter(self._contexts))]

    def _describe(self, span: Span, effect: AdmissionEnded) -> None:
        end_ns = time.time_ns()
        chosen_ns = end_ns - effect.bind_ms * _MS
        arrived_ns = chosen_ns - effect.waited_ms * _MS
        span.set_attributes(_attributes(effect))
        for reason, from_ms, _, detail in effect.history:
            span.add_event(
                "waits",
                {"stateroom.reason": reason.value, "stateroom.detail": detail, "stateroom.from_ms": from_ms},
                timestamp=arrived_ns + from_ms * _MS,
            )
        for name in effect.holders:
            context = self._contexts.get(name)
            if context is not None:
                span.add_link(context, {"stateroom.link": "holder", "stateroom.sequence.id": name})
        if effect.outcome in _FAILED:
            span.set_status(Status(StatusCode.ERROR, effect.reason))
        if effect.outcome == "admitted" and effect.slots:
            parent = trace.set_span_in_context(span, Context())
            bind = self._tracer.start_span(
                "bind",
                context=parent,
                start_time=chosen_ns,
                attributes={
                    "stateroom.sequence.id": effect.sequence_id,
                    "stateroom.slots": list(effect.slots),
                },
            )
            bind.end(end_ns)


def _attributes(effect: AdmissionEnded) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "stateroom.outcome": effect.outcome,
        "stateroom.cap": "unbounded" if effect.cap is None else effect.cap,
        "stateroom.residents": effect.residents,
        "stateroom.limiting_ranks": list(effect.limiting_ranks),
        "stateroom.wait_ms": effect.waited_ms,
        "stateroom.bind_ms": effect.bind_ms,
    }
    if effect.history:
        attributes["stateroom.reason.first"] = effect.history[0][0].value
        attributes["stateroom.reason.last"] = effect.history[-1][0].value
    for reason, ms in effect.ms_by_reason.items():
        attributes[f"stateroom.wait_ms.{reason.value}"] = ms
    return attributes


class AgreementSpans:
    """`residency.agree` from the first question to the agreement, with a child a rank."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: Span | None = None

    def asking(self, rank: int, address: str) -> Span:
        """A rank is asked: the child span; the caller ends it with `answered`."""
        if self._open is None:
            self._open = self._tracer.start_span("residency.agree", context=Context())
        return self._tracer.start_span(
            "residency.query",
            context=trace.set_span_in_context(self._open, Context()),
            attributes={"stateroom.rank": rank, "stateroom.address": address},
        )

    @staticmethod
    def answered(span: Span, answer: Answer, slot_bytes: int, quota_bytes: int) -> None:
        """The rank's local answer and its two main terms."""
        span.set_attributes(
            {
                "stateroom.local": describe(answer),
                "stateroom.slot_bytes": slot_bytes,
                "stateroom.quota_bytes": quota_bytes,
            }
        )
        span.end()

    def changed(self, effect: GroupChanged) -> None:
        """The group is ready: the agreement is complete."""
        if self._open is None or not effect.ready:
            return
        answer = effect.agreement.answer
        assert isinstance(answer, Bounded | Unbounded), f"a ready group agreed on {answer}"
        self._open.set_attributes(
            {
                "stateroom.asked": effect.agreement.asked,
                "stateroom.cap": answer.slots_count if isinstance(answer, Bounded) else "unbounded",
                "stateroom.limiting_ranks": list(effect.agreement.limiting_ranks),
            }
        )
        self._open.end()
        self._open = None

    def close(self) -> None:
        """An agreement that never came is exported as unfinished, not lost (fact M20)."""
        if self._open is not None:
            self._open.set_status(Status(StatusCode.ERROR, "stopped before the group was ready"))
            self._open.end()
            self._open = None

"""What people ask, as messages."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.explain import Description, Explanation
from stateroom.v1 import cache_service_pb2 as cache_pb
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.wire_words import answer_to, reason_to, state_to

__all__ = ["RankReport", "description", "explanation"]

RankReport = tuple[str, cache_pb.ResidencyQueryResponse | None, int]  # address, last report, its age in ms


def explanation(e: Explanation) -> pb.ExplainResponse:
    """The story of one sequence."""
    response = pb.ExplainResponse(
        sequence_id=e.sequence_id,
        state=state_to(e.state),
        outcome=e.outcome,
        sentence=e.sentence,
        reason=reason_to(e.reason),
        waited_ms=e.waited_ms,
        position=e.position,
        position_at_arrival=e.position_at_arrival,
        residents=e.residents,
        limiting_ranks=e.limiting_ranks,
        demand=e.demand,
    )
    if e.cap is not None:
        response.cap = e.cap
    if e.estimate_ms is not None:
        response.estimate_ms = e.estimate_ms
    for reason, from_ms, for_ms, detail in e.history:
        response.history.add(reason=reason_to(reason), from_ms=from_ms, for_ms=for_ms, detail=detail)
    for h in e.holders:
        response.holders.add(
            sequence_id=h.sequence_id, state=state_to(h.state), slot=h.slot, held_ms=h.held_ms
        )
    return response


def description(d: Description, term: int, reports: Mapping[int, RankReport]) -> pb.DescribeResidencyResponse:
    """The agreement, and every rank's last report beside what the core makes of it."""
    response = pb.DescribeResidencyResponse(
        agreed=answer_to(d.agreement.answer),
        asked=d.agreement.asked,
        limiting_ranks=d.agreement.limiting_ranks,
        residents=d.residents,
        waiting=sum(d.waiting_by_reason.values()),
        waiting_by_reason={reason.value: n for reason, n in d.waiting_by_reason.items()},
        term=term,
        sentence=d.sentence,
        peak_residents=d.peak_residents,
        slots_held=d.slots_held,
    )
    for state, count in d.residents_by_state.items():
        response.residents_by_kind.add(state=state_to(state), count=count)
    for view in d.ranks:
        address, report, age_ms = reports[view.number]
        row = response.ranks.add(
            address=address,
            status=view.status,
            report_age_ms=age_ms,
            limiting=view.limiting,
            unused_slots=view.unused_slots,
        )
        if report is not None:
            row.report.CopyFrom(report)
    return response

"""Messages of the Step stream, as core events and effects."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_svc.core import effects, events
from stateroom.residency.states import SequenceState
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types
from stateroom.wire_words import answer_to, generation_from, generation_to, reason_to, state_from

__all__ = ["arrival", "step_message", "step_response"]

_KIND = {
    types.SEQUENCE_KIND_CONTEXT: "context",
    types.SEQUENCE_KIND_GENERATION_INIT: "generation_init",
    types.SEQUENCE_KIND_CONTEXT_ONLY: "context_only",
}
_TRANSFER = {
    pb.TRANSFER_EVENT_STARTED: "started",
    pb.TRANSFER_EVENT_COMPLETED: "completed",
    pb.TRANSFER_EVENT_FAILED: "failed",
}


def arrival(message: pb.Arrival) -> events.Arrival:
    """A new sequence; a missing demand is 1."""
    return events.Arrival(
        sequence_id=message.sequence_id,
        kind=_KIND.get(message.kind, "unspecified"),
        prompt_tokens=message.prompt_tokens,
        max_output_tokens=message.max_output_tokens,
        demand=message.demand if message.HasField("demand") else 1,
        priority=message.priority,
        traceparent=message.traceparent,
        engine_hold=message.engine_hold,
        tenant=message.tenant,
        deadline_ms=message.deadline_ms,
        chunk_boundaries=tuple(message.chunk_boundaries),
    )


def _facts(message: pb.StepRequest) -> list[events.Fact]:
    """In the order that frees before it takes: ends first, then news of holders, then arrivals."""
    return [*_whole_session(message), *_ends(message), *_news(message), *_waiters(message)]


def _whole_session(message: pb.StepRequest) -> Iterator[events.Fact]:
    for a in message.attached:
        yield events.Attached(a.rank, a.boot_id)
    if message.HasField("kv_pages"):
        kv = message.kv_pages
        yield events.KvReported(kv.page_tokens, kv.total_pages, kv.free_pages)
    if message.HasField("all_states_void"):
        yield events.AllStatesVoid(message.all_states_void.last_step)


def _ends(message: pb.StepRequest) -> Iterator[events.Fact]:
    for f in message.finishes:
        yield events.Finished(
            f.sequence_id, generation_from(f.generation), f.last_step, f.output_tokens, f.keep_as_cache
        )
    for name in message.cancels:
        yield events.Cancelled(name)
    for g in message.let_go:
        yield events.LetGo(g.sequence_id, generation_from(g.generation), g.last_step, g.state_kept)
    for p in message.preempted:
        yield events.EnginePreempted(p.sequence_id, generation_from(p.generation), p.last_step, p.state_kept)


def _news(message: pb.StepRequest) -> Iterator[events.Fact]:
    for t in message.transfers:
        yield events.TransferReported(
            t.sequence_id, generation_from(t.generation), _TRANSFER.get(t.event, "")
        )
    for g in message.grant_answers:
        yield events.GrantAnswered(g.sequence_id, generation_from(g.generation), g.declined)
    for s in message.suspensions:
        yield events.Suspension(s.sequence_id, generation_from(s.generation), s.suspended)
    for p in message.progress:
        yield events.Progressed(p.sequence_id, generation_from(p.generation), p.computed_tokens)


def _waiters(message: pb.StepRequest) -> Iterator[events.Fact]:
    for name in message.ready:
        yield events.Ready(name)
    for change in message.demand_changes:
        yield events.DemandChanged(change.sequence_id, change.demand)
    for a in message.arrivals:
        yield arrival(a)


def step_message(session_id: str, message: pb.StepRequest) -> events.StepMessage:
    """One message of a Step stream."""
    return events.StepMessage(
        session_id=session_id,
        delta_number=message.delta_number,
        step=message.step,
        completed_step=message.completed_step,
        facts=tuple(_facts(message)),
        session_list=_session_list(message.list) if message.HasField("list") else None,
        full=message.full,
    )


def _session_list(message: pb.SessionList) -> events.SessionList:
    return events.SessionList(
        held=tuple(
            events.Held(
                arrival=arrival(h.arrival),
                slots=tuple(handle.slot for handle in h.handles),
                generation=generation_from(h.handles[0].generation) if h.handles else (0, 0),
                state=state_from(h.state) or SequenceState.DECODE,
                computed_tokens=h.computed_tokens,
                last_step=h.last_step,
            )
            for h in message.held
        ),
        waiting=tuple(arrival(a) for a in message.waiting),
    )


def step_response(
    effect: effects.Tell, term: int, boot_ids: list[str], attach: list[pb.RankAddress]
) -> pb.StepResponse:
    """Decisions of a step or a push; only what changed."""
    decisions = effect.decisions
    response = pb.StepResponse(
        step=effect.step,
        term=term,
        acknowledged_delta=effect.acknowledged_delta,
        binding_count=effect.binding_count,
        residents_count=effect.residents_count,
        waiting_count=effect.waiting_count,
        decode_count=effect.decode_count,
        cancelled=decisions.cancelled,
        attach=attach,
    )
    for g in decisions.grants:
        generation = generation_to(g.generation)
        handles = [types.Handle(slot=slot, generation=generation, boot_ids=boot_ids) for slot in g.slots]
        response.grants.add(
            sequence_id=g.sequence_id, handles=handles, wait_ms=g.wait_ms, computed_tokens=g.computed_tokens
        )
    for c in decisions.chunks:
        response.chunks.add(sequence_id=c.sequence_id, start=c.start, tokens=c.tokens, last=c.last)
    for r in decisions.rejections:
        response.rejections.add(
            sequence_id=r.sequence_id,
            reason=r.reason.value,
            message=r.message,
            retry_after_ms=r.retry_after_ms,
        )
    for lost in decisions.recompute:
        response.recompute.add(
            sequence_id=lost.sequence_id, generation=generation_to(lost.generation), message=lost.message
        )
    for p in decisions.preemptions:
        response.preemptions.add(
            sequence_id=p.sequence_id,
            generation=generation_to(p.generation),
            keep_state=p.keep_state,
            message=p.message,
        )
    for reclaim in decisions.reclaim:
        response.reclaim.add(sequence_id=reclaim.sequence_id, generation=generation_to(reclaim.generation))
    for name, lane, position in decisions.queued:
        response.queued.add(sequence_id=name, lane=lane, position=position)
    for lane, (reason, detail) in decisions.lanes.items():
        response.lanes.add(lane=lane, reason=reason_to(reason), detail=detail)
    for w in decisions.waiters:
        response.waiters.add(sequence_id=w.sequence_id, reason=reason_to(w.reason), waited_ms=w.waited_ms)
    if decisions.agreement is not None:
        response.agreed.CopyFrom(answer_to(decisions.agreement.answer))
    return response

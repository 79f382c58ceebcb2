"""Reads the core for people: why a sequence waits, what the group agreed on. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_svc.core.ending import HOLDERS_LINKED
from scheduler_svc.core.planning import chunk_tokens
from scheduler_svc.core.rates import estimate_ms
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.story import History, history_of
from scheduler_svc.core.world import World
from stateroom.residency.agreement import Agreement
from stateroom.residency.answer import Answer, Bounded, Pending, Unbounded
from stateroom.residency.phrases import counted, ranks_text
from stateroom.residency.reasons import ErrorReason, Refused, WaitReason
from stateroom.residency.states import HOLDS_SLOT, SequenceState

__all__ = ["Description", "Explanation", "Holder", "RankView", "describe", "explain", "group_sentence"]


# What ends each reason, as the end of a sentence.
RELEASED_BY = {
    WaitReason.RESIDENCY_CAP: "a holder ends or the cap is raised",
    WaitReason.TOKEN_BUDGET: "a step has tokens left",
    WaitReason.BATCH_LIMIT: "a sequence ends",
    WaitReason.KV_PAGES: "the engine reports free pages",
    WaitReason.SCRUBBING: "the row is zero",
    WaitReason.TRANSFER_LIMIT: "a transfer ends",
    WaitReason.POLICY_ORDER: "the one before it has started",
    WaitReason.TENANT_SHARE: "the other tenant has had its share",
    WaitReason.RANK_PENDING: "that rank is ready",
    WaitReason.RECOVERING: "those sessions have been heard",
    WaitReason.DRAINING: "another scheduler takes over",
    WaitReason.ENGINE: "the engine says that it is ready for it",
}


@dataclass(frozen=True, slots=True)
class Holder:
    """An owner in the way."""

    sequence_id: str
    state: SequenceState
    slot: int
    held_ms: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The story of one sequence, times in ms."""

    sequence_id: str
    state: SequenceState | None
    outcome: str
    sentence: str
    reason: WaitReason | None
    waited_ms: int
    history: History
    position: int
    position_at_arrival: int
    cap: int | None
    residents: int
    limiting_ranks: tuple[int, ...]
    holders: tuple[Holder, ...]
    estimate_ms: int | None
    demand: int


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank for people."""

    number: int
    status: str
    local: Answer
    limiting: bool
    unused_slots: int


@dataclass(frozen=True, slots=True)
class Description:
    """The agreement and who holds what."""

    agreement: Agreement
    ranks: tuple[RankView, ...]
    residents: int
    residents_by_state: dict[SequenceState, int]
    waiting_by_reason: dict[WaitReason, int]
    slots_held: int
    peak_residents: int
    sentence: str


def explain(world: World, sequence_id: str) -> Explanation:
    """For any id that lives or ended lately; SEQUENCE_UNKNOWN else."""
    sequence = world.sequences.get(sequence_id)
    if sequence is not None:
        return _living(world, sequence)
    ended = world.ended.get(sequence_id)
    if ended is None:
        raise Refused(
            ErrorReason.SEQUENCE_UNKNOWN,
            f"no sequence {sequence_id!r} lives here or ended lately: check the id, or ask the trace file",
        )
    sentence = f"{sequence_id} {ended.outcome} after waiting {ended.waited_ms} ms for its slot."
    if ended.message:
        sentence += f" {ended.message}."
    return Explanation(
        sequence_id=sequence_id,
        state=None,
        outcome=ended.outcome,
        sentence=sentence,
        reason=None,
        waited_ms=ended.waited_ms,
        history=ended.history,
        position=0,
        position_at_arrival=ended.position_at_arrival,
        cap=world.cap,
        residents=len(world.residents),
        limiting_ranks=world.agreement.limiting_ranks,
        holders=(),
        estimate_ms=None,
        demand=ended.demand,
    )


def _living(world: World, sequence: Sequence) -> Explanation:
    waits = sequence.waits
    spells, ms, reason, detail, position = sequence.spells, sequence.ms_by_reason, None, "", 0
    if waits:
        lane = world.lanes.lane_of(sequence)
        spells = lane.spells_of(sequence, world.now_ms)
        ms = lane.ms_by_reason(sequence, world.now_ms)
        position = world.lanes.ahead_of(sequence)
        if lane.clock.spell is not None:
            reason, detail = lane.clock.spell.reason, lane.clock.spell.detail
        if sequence.engine_word:
            detail = sequence.engine_word
    holders = _holders(world) if waits else ()
    expected_ms = estimate_ms(world, position + sequence.demand) if waits else None
    waited_ms = sum(ms.values())
    return Explanation(
        sequence_id=sequence.id,
        state=sequence.state,
        outcome="",
        sentence=_sentence(world, sequence, reason, detail, waited_ms, position, holders, expected_ms),
        reason=reason,
        waited_ms=waited_ms,
        history=history_of(spells, sequence.arrived_ms),
        position=position,
        position_at_arrival=sequence.position_at_arrival,
        cap=world.cap,
        residents=len(world.residents),
        limiting_ranks=world.agreement.limiting_ranks,
        holders=holders,
        estimate_ms=expected_ms,
        demand=sequence.demand,
    )


def _holders(world: World) -> tuple[Holder, ...]:
    rows = zip(world.residents.values(), range(HOLDERS_LINKED), strict=False)
    return tuple(
        Holder(s.id, s.state, s.slots[0] if s.slots else 0, world.now_ms - s.chosen_ms) for s, _ in rows
    )


def _sentence(
    world: World,
    sequence: Sequence,
    reason: WaitReason | None,
    detail: str,
    waited_ms: int,
    position: int,
    holders: tuple[Holder, ...],
    expected_ms: int | None,
) -> str:
    if reason is None:
        slots = ", ".join(map(str, sequence.slots)) or "none"
        text = f"{sequence.id} is in {sequence.state} and holds slot {slots}; it waited {waited_ms} ms for it"
        return f"{text}{_held_back(world, sequence)}."
    text = (
        f"{sequence.id} has waited {waited_ms} ms, now for {reason} ({detail}); {position} sequences are ahead of it "
        f"and {len(world.residents)} hold slots"
    )
    if holders:
        text += f", the longest {holders[0].sequence_id} for {holders[0].held_ms} ms"
    text += f"; it goes on when {RELEASED_BY[reason]}"
    return text + (f". A slot is expected in about {expected_ms} ms." if expected_ms is not None else ".")


def _held_back(world: World, sequence: Sequence) -> str:
    """A resident's context that gets no tokens: what the decodes leave is too small for a chunk (A18)."""
    session = world.sessions[sequence.session_id]
    if sequence.state is not SequenceState.CONTEXT or session.engine_budgets:
        return ""
    most_tokens = world.settings.max_step_tokens
    left_tokens = most_tokens - session.decode_count * (1 + world.settings.draft_tokens)
    if chunk_tokens(world.settings, sequence, left_tokens):
        return ""
    return (
        f"; no chunk of it fits: {counted(session.decode_count, 'sequence')} decode and leave "
        f"{max(0, left_tokens)} of {most_tokens} tokens a step"
    )


def describe(world: World) -> Description:
    """The agreement, every rank's view, and the residents by kind."""
    waiting: dict[WaitReason, int] = {}
    for lane in world.lanes.lanes:
        if lane.clock.spell is not None:
            waiting[lane.clock.spell.reason] = waiting.get(lane.clock.spell.reason, 0) + lane.count
    agreement = world.agreement
    views = []
    for rank in world.ranks:
        limiting = rank.number in agreement.limiting_ranks and isinstance(agreement.answer, Bounded)
        n = rank.answer.slots_count if isinstance(rank.answer, Bounded) else 0
        unused = max(0, n - world.seats) if not limiting else 0
        views.append(RankView(rank.number, rank.status, rank.answer, limiting, unused))
    return Description(
        agreement=agreement,
        ranks=tuple(views),
        residents=len(world.residents),
        residents_by_state={s: n for s, n in world.count_by_state.items() if n and HOLDS_SLOT[s]},
        waiting_by_reason=waiting,
        slots_held=world.held_slots + world.mirror.foreign_count,
        peak_residents=world.peak_residents,
        sentence=group_sentence(world),
    )


def group_sentence(world: World) -> str:
    """What the group can hold and who limits it, or what it waits for."""
    mismatch = world.ranks.mismatch()
    if mismatch:
        return mismatch
    if world.draining:
        return f"The group drains: nothing new starts, {len(world.residents)} sequences still hold slots."
    if world.no_progress:
        return f"{world.no_progress[0].upper()}{world.no_progress[1:]}."
    asked = world.settings.asked
    pending = world.ranks.first_pending
    match world.agreement.answer:
        case Bounded(0):
            ranks = ranks_text(world.agreement.limiting_ranks)
            return f"No sequence fits on {ranks}: raise the --quota or make a slot smaller."
        case Pending(reason):
            return f"The group does not admit: {reason}."
        case _ if pending is not None:
            return f"The group does not admit: rank {pending.number} {pending.status}."
        case Unbounded():
            return f"All {asked} sequences asked for fit on every rank."
        case Bounded(cap):
            ranks = ranks_text(world.agreement.limiting_ranks)
            more = world.ranks.restart_sentence()
            return f"{cap} of {asked} sequences asked for fit, limited by {ranks}." + (more and f" {more}")

"""What an executor says of its sequences, applied one by one as it happens (rules A10, A11, C3).

A fact that names a stale ownership or an illegal move changes nothing and is counted.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler_svc.core.admission import take_back
from scheduler_svc.core.arrivals import arrive
from scheduler_svc.core.caching import keep_as_cache
from scheduler_svc.core.demand import refuse_too_demanding
from scheduler_svc.core.ending import cancel_binding, end_waiting, fence, order_releases, retire, stop_running
from scheduler_svc.core.events import (
    AllStatesVoid,
    Arrival,
    Attached,
    Cancelled,
    DemandChanged,
    EnginePreempted,
    Fact,
    Finished,
    Generation,
    GrantAnswered,
    KvReported,
    LetGo,
    Owned,
    Progressed,
    Ready,
    Suspension,
    TransferReported,
)
from scheduler_svc.core.limits import watch_again
from scheduler_svc.core.planning import context_done
from scheduler_svc.core.preemption import may_be_preempted
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.world import World
from stateroom.residency.states import HOLDS_SLOT, SequenceEvent, SequenceState

__all__ = ["apply_fact", "cancel", "change_waiter"]

_S, _E = SequenceState, SequenceEvent


def apply_fact(world: World, session: Session, fact: Fact) -> None:
    """One fact of a session's message."""
    match fact:
        case Arrival():
            arrive(world, session, fact)
        case KvReported():
            session.kv.report(fact, session.step + 1)
        case AllStatesVoid():
            _all_void(world, session, fact.last_step)
        case Attached():
            session.attached[fact.rank] = fact.boot_id
            rank = world.ranks[fact.rank]
            if rank.boot_id == fact.boot_id:
                rank.unattached.discard(session.id)
                session.outbox.attach = [n for n in session.outbox.attach if n != fact.rank]
                world.ranks.refresh()
        case Cancelled() | Ready() | DemandChanged():
            _named(world, session, fact)
        case _:
            _owned(world, session, fact)


def _all_void(world: World, session: Session, last_step: int) -> None:
    """Every resident of the session is computed again, in its place; states in host memory are void too."""
    for sequence in [s for s in world.residents.values() if s.session_id == session.id]:
        if sequence.can(_E.RANK_LOST):
            stop_running(world, sequence)
            world.move(sequence, _E.RANK_LOST)
            sequence.last_step = last_step
            fence(world, sequence)
        elif sequence.state is _S.CACHED:
            retire(world, sequence, "finished", last_step)
        elif sequence.state is _S.LOST:
            sequence.state_kept = False
            if not sequence.let_go:  # told to stop, and with this it has
                sequence.let_go, sequence.last_step = True, last_step
                fence(world, sequence)
        elif sequence.state is _S.BINDING:
            sequence.state_kept, sequence.computed_tokens = False, 0
    kept = [
        s for s in world.sequences.values() if s.state is _S.SUSPENDED_HOST and s.session_id == session.id
    ]
    for sequence in kept:
        world.dequeue(sequence)
        world.move(sequence, _E.VOIDED)
        sequence.state_kept = False
        world.requeue(sequence)


def _named(world: World, session: Session, fact: Cancelled | Ready | DemandChanged) -> None:
    sequence = world.sequences.get(fact.sequence_id)
    if sequence is None or sequence.session_id != session.id:
        world.refused_by_reason["SEQUENCE_UNKNOWN"] += fact.sequence_id not in world.ended
        return
    if isinstance(fact, Cancelled):
        cancel(world, session, sequence)
    elif sequence.state in (_S.WAITING, _S.BINDING) and isinstance(fact, DemandChanged):
        if sequence.state is _S.BINDING:
            take_back(world, sequence)  # chosen by the old number, and not told
        change_waiter(world, sequence, fact.demand, sequence.engine_word)
        refuse_too_demanding(world)
    elif isinstance(fact, Ready) and sequence.engine_word and sequence.waits:
        change_waiter(world, sequence, sequence.demand, "")


def change_waiter(world: World, sequence: Sequence, demand: int, engine_word: str) -> None:
    """Another demand, or another word of the engine: another lane, the same place in the order."""
    world.dequeue(sequence)
    world.recount(sequence, sequence.state, None)  # counts are of slots, and none of demand 0
    sequence.arrival = replace(sequence.arrival, demand=demand)
    sequence.engine_word = engine_word
    world.recount(sequence, None, sequence.state)
    world.enqueue(sequence)


def cancel(world: World, session: Session, sequence: Sequence) -> None:
    """Ends it in whatever state it is; one in transfer ends when the transfer does (scenario D03)."""
    match sequence.state:
        case _S.WAITING | _S.SUSPENDED_HOST:
            end_waiting(world, sequence, "cancelled")
        case _S.BINDING:
            cancel_binding(world, sequence)
        case _S.TRANSFER_IN | _S.TRANSFER_OUT | _S.LOST:
            sequence.ending = sequence.ending or "cancelled"
        case _S.RETIRING:
            pass  # the first end counts (scenario L15)
        case _:
            retire(world, sequence, "cancelled", last_step=session.step)


def _owned(world: World, session: Session, fact: Owned) -> None:
    """A fact about an ownership; a stale or foreign one changes nothing (rule C3)."""
    sequence = _owner(world, fact.sequence_id, fact.generation)
    if sequence is None or sequence.session_id != session.id or not _is_current(sequence, fact.generation):
        world.refused_by_reason["STALE_GENERATION"] += 1
        return
    match fact:
        case Finished() if fact.keep_as_cache and sequence.can(_E.CACHE):
            keep_as_cache(world, sequence)
        case Finished() if sequence.state is not _S.RETIRING and sequence.can(_E.ENDED):
            retire(world, sequence, "finished", fact.last_step)
        case TransferReported():
            _transfer(world, session, sequence, fact.event)
        case GrantAnswered() if fact.declined and sequence.can(_E.DECLINED):
            _declined(world, sequence, fact.declined)
        case Suspension() if sequence.state in (_S.CONTEXT, _S.DECODE, _S.SUSPENDED):
            _suspension(world, session, sequence, fact.suspended)
        case LetGo() if sequence.state is _S.LOST and not sequence.let_go:
            sequence.let_go = True
            sequence.last_step = fact.last_step
            sequence.state_kept = fact.state_kept and not sequence.lost_on
            fence(world, sequence)
        case EnginePreempted() if sequence.can(_E.PREEMPTED):
            _stopped(world, sequence, fact, _E.PREEMPTED)
        case LetGo() if sequence.can(_E.RANK_LOST):  # an earlier leader had asked for it
            _stopped(world, sequence, fact, _E.RANK_LOST)
        case Progressed() if session.engine_budgets and sequence.state is _S.CONTEXT:
            sequence.computed_tokens = min(fact.computed_tokens, sequence.arrival.prompt_tokens)
            if not sequence.context_left:
                context_done(world, session, sequence)


def _stopped(world: World, sequence: Sequence, fact: EnginePreempted | LetGo, event: SequenceEvent) -> None:
    """It does not run any more; it waits again once no step uses its slot."""
    stop_running(world, sequence)
    world.move(sequence, event)
    sequence.last_step = fact.last_step
    sequence.state_kept = fact.state_kept
    fence(world, sequence)


def _owner(world: World, name: str, generation: Generation) -> Sequence | None:
    """By id, or by the internal name of one whose id was given up (two transfer limits)."""
    nameless = world.sequences.get(f"{name}#{generation[0]}.{generation[1]}")
    return nameless if nameless is not None else world.sequences.get(name)


def _is_current(sequence: Sequence, generation: Generation) -> bool:
    return (
        HOLDS_SLOT[sequence.state] and sequence.state is not _S.BINDING and sequence.generation == generation
    )


def _transfer(world: World, session: Session, sequence: Sequence, event: str) -> None:
    state = sequence.state
    if event == "started" and sequence.can(_E.TRANSFER_STARTED):
        world.move(sequence, _E.TRANSFER_STARTED)
    elif event == "completed" and sequence.can(_E.TRANSFER_DONE) and not sequence.ending:
        world.move(sequence, _E.TRANSFER_DONE)
        sequence.computed_tokens = sequence.arrival.prompt_tokens
        session.decode_count += 1
    elif event in ("completed", "failed") and state in (_S.GENERATION_INIT, _S.TRANSFER_IN, _S.TRANSFER_OUT):
        outcome = "finished" if event == "completed" and state is _S.TRANSFER_OUT else "failed"
        retire(world, sequence, sequence.ending or outcome, last_step=session.step)


def _declined(world: World, sequence: Sequence, word: str) -> None:
    """The engine will not start it now: the slot goes back unused, the place is kept (rule A11)."""
    if sequence.ending:  # cancelled already: it is over, not waiting
        retire(world, sequence, sequence.ending, last_step=0)
        return
    stop_running(world, sequence)
    order_releases(world, sequence)
    session = world.sessions[sequence.session_id]
    session.kv.give_back(sequence)
    sequence.state_kept = sequence.resumed and sequence.state is _S.DECODE
    world.move(sequence, _E.DECLINED_KEPT if sequence.state_kept else _E.DECLINED)
    sequence.engine_word = word
    world.requeue(sequence)
    watch_again(world, sequence)


def _suspension(world: World, session: Session, sequence: Sequence, suspended: bool) -> None:
    if suspended and sequence.can(_E.SUSPEND):
        stop_running(world, sequence)
        world.move(sequence, _E.SUSPEND)
    elif not suspended and sequence.state is _S.SUSPENDED:
        if sequence.context_left:
            world.move(sequence, _E.RESUME_CONTEXT)
            session.chunking[sequence.id] = sequence
        else:
            world.move(sequence, _E.RESUME_DECODE)
            session.decode_count += 1
        may_be_preempted(world, sequence)

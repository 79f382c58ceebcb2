"""How a sequence leaves: its wait ends, its slots are released on every rank, its story is kept.

The one place where slots are given back (rules C2, C3), so that nothing can be released twice:
`residents` holds the owner until `release`, and a sequence is forgotten in the same move.
"""

from __future__ import annotations

from heapq import heappop, heappush

from scheduler_svc.core.effects import AdmissionEnded, ReleaseOrder
from scheduler_svc.core.order import place
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.story import Ended, history_of
from scheduler_svc.core.world import World
from stateroom.residency.states import SequenceEvent, SequenceState

__all__ = [
    "cancel_binding",
    "end_wait",
    "end_waiting",
    "fence",
    "forget",
    "forget_name",
    "order_releases",
    "release_fenced",
    "retire",
    "stop_running",
]

HOLDERS_LINKED = 8  # holders that blocked a sequence, named on its span (section 7)


def end_wait(world: World, sequence: Sequence, outcome: str, reason: str = "") -> None:
    """The admission span of a sequence ends: admitted, rejected, expired or cancelled."""
    bind_ms = world.now_ms - sequence.chosen_ms if sequence.chosen_ms and outcome == "admitted" else 0
    world.emit(
        AdmissionEnded(
            sequence_id=sequence.id,
            outcome=outcome,
            reason=reason,
            demand=sequence.demand,
            slots=sequence.slots,
            position=sequence.position_at_arrival,
            waited_ms=sequence.waited_ms,
            bind_ms=bind_ms,
            ms_by_reason=dict(sequence.ms_by_reason),
            history=history_of(sequence.spells, sequence.arrived_ms),
            cap=world.cap,
            residents=len(world.residents),
            limiting_ranks=world.agreement.limiting_ranks,
            holders=sequence.blocked_by,
        )
    )


def end_waiting(world: World, sequence: Sequence, outcome: str, reason: str = "", message: str = "") -> None:
    """A waiter ends without a slot."""
    world.dequeue(sequence)
    end_wait(world, sequence, outcome, reason)
    forget(world, sequence, outcome, message)


def forget(world: World, sequence: Sequence, outcome: str, message: str = "") -> None:
    """It is gone; its story goes to the ended ones, unless it went there with its name before."""
    world.sessions[sequence.session_id].kv.give_back(sequence)
    world.remove(sequence)
    if not sequence.nameless:
        world.keep_story(_story(sequence, outcome, message))


def forget_name(world: World, sequence: Sequence, outcome: str, message: str) -> None:
    """Its id is free for others; its slots are held on under an internal name (two transfer limits)."""
    world.keep_story(_story(sequence, outcome, message))
    world.rename(sequence, f"{sequence.id}#{sequence.generation[0]}.{sequence.generation[1]}")


def _story(sequence: Sequence, outcome: str, message: str) -> Ended:
    return Ended(
        sequence_id=sequence.id,
        outcome=outcome,
        message=message,
        demand=sequence.demand,
        waited_ms=sequence.waited_ms,
        position_at_arrival=sequence.position_at_arrival,
        history=history_of(sequence.spells, sequence.arrived_ms),
    )


def stop_running(world: World, sequence: Sequence) -> None:
    """Takes a resident out of the step's work, before its state moves."""
    session = world.sessions[sequence.session_id]
    if sequence.state is SequenceState.DECODE:
        session.decode_count -= 1
    elif sequence.state is SequenceState.CONTEXT:
        session.chunking.pop(sequence.id, None)
    elif sequence.state is SequenceState.BINDING:
        del world.binding[sequence.id]
        world.inits_binding -= sequence.arrival.kind == "generation_init"
    elif sequence.state is SequenceState.CACHED and world.cached.pop(sequence.id, None) is None:
        world.reclaiming_slots -= sequence.demand


def order_releases(world: World, sequence: Sequence) -> None:
    """Orders the release of its slots on every rank that has them bound (rule C3: once)."""
    for rank in world.ranks:
        if rank.number in sequence.lost_on:
            continue
        for slot in sequence.slots:
            world.mirror.releasing(rank.number, slot)
            if rank.in_service:
                rank.releases.append(ReleaseOrder(slot, sequence.generation))
    sequence.slots = ()
    sequence.lost_on.clear()


def cancel_binding(world: World, sequence: Sequence) -> None:
    """Cancelled before anyone was told of its slot: no step uses it, and its admission ends here."""
    end_wait(world, sequence, "cancelled")
    retire(world, sequence, "cancelled", last_step=0)


def retire(world: World, sequence: Sequence, outcome: str, last_step: int) -> None:
    """Finished or cancelled: the slot is held until the last step that touches it is done (rule C2)."""
    stop_running(world, sequence)
    world.move(sequence, SequenceEvent.ENDED)
    sequence.ending = outcome
    sequence.last_step = last_step
    fence(world, sequence)


def fence(world: World, sequence: Sequence) -> None:
    """Waits for the last step that touches the slots, or goes on at once where it is done."""
    session = world.sessions[sequence.session_id]
    if sequence.last_step <= session.completed_step:
        _pass_fence(world, sequence)
    else:
        entry = (sequence.last_step, sequence.number, sequence.generation, sequence)
        heappush(session.fenced, entry)


def release_fenced(world: World, session_id: str) -> None:
    """After completed_step rose: everything whose fence is reached goes on."""
    session = world.sessions[session_id]
    while session.fenced and session.fenced[0][0] <= session.completed_step:
        last_step, _, generation, sequence = heappop(session.fenced)
        named = (sequence.last_step, sequence.generation) == (last_step, generation)  # else: said again since
        current = named and world.sequences.get(sequence.id) is sequence
        if current and sequence.state in (SequenceState.RETIRING, SequenceState.LOST):
            _pass_fence(world, sequence)


def _pass_fence(world: World, sequence: Sequence) -> None:
    order_releases(world, sequence)
    if sequence.state is SequenceState.RETIRING or sequence.ending:
        forget(world, sequence, sequence.ending)
        return
    kept = sequence.state_kept
    world.move(sequence, SequenceEvent.RELEASED_KEPT if kept else SequenceEvent.RELEASED)
    world.sessions[sequence.session_id].kv.give_back(sequence)
    sequence.started = True
    sequence.order = place(world.settings, sequence)
    world.requeue(sequence)  # LOST: waits again, in its place (rules A11, D2)

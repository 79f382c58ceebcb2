"""What an executor says of its sequences, applied one by one as it happens (rules A10, A11, C3).

A fact that names a stale ownership or an illegal move changes nothing and is counted.
"""

from __future__ import annotations

import re

from scheduler_svc.core.effects import AdmissionStarted
from scheduler_svc.core.ending import end_waiting, fence, order_releases, retire, stop_running
from scheduler_svc.core.events import (
    Arrival,
    Attached,
    Cancelled,
    Fact,
    Finished,
    Generation,
    GrantAnswered,
    LetGo,
    Ready,
    Suspension,
    TransferReported,
)
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.world import World
from stateroom.residency.reasons import ErrorReason
from stateroom.residency.states import HOLDS_SLOT, SequenceEvent, SequenceState

__all__ = ["apply_fact", "cancel", "new_waiter"]

KINDS = ("context", "generation_init", "context_only")
SEQUENCE_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_S, _E = SequenceState, SequenceEvent


def apply_fact(world: World, session: Session, fact: Fact) -> None:
    """One fact of a session's message."""
    match fact:
        case Arrival():
            _arrived(world, session, fact)
        case Attached():
            session.attached[fact.rank] = fact.boot_id
            rank = world.ranks[fact.rank]
            if rank.boot_id == fact.boot_id:
                rank.unattached.discard(session.id)
                world.ranks.refresh()
        case Cancelled() | Ready():
            _named(world, session, fact)
        case _:
            _owned(world, session, fact)


def _arrived(world: World, session: Session, arrival: Arrival) -> None:
    reason, message = _fault_of(world, arrival)
    if reason is not None:
        session.outbox.reject(arrival.sequence_id, reason, message)
        return
    sequence = new_waiter(world, session, arrival)
    world.emit(
        AdmissionStarted(sequence.id, arrival.traceparent, sequence.demand, sequence.position_at_arrival)
    )


def new_waiter(world: World, session: Session, arrival: Arrival) -> Sequence:
    """A sequence enters the queue behind all that arrived before it."""
    world.arrivals_count += 1
    order = (-arrival.priority, world.arrivals_count)
    sequence = Sequence(arrival, session.id, world.now_ms, order, engine_word=arrival.engine_hold)
    world.add(sequence)
    sequence.position_at_arrival = world.lanes.ahead_of(sequence)
    world.enqueue(sequence)
    return sequence


def _fault_of(world: World, arrival: Arrival) -> tuple[ErrorReason | None, str]:
    """Why an arrival can never be admitted: one sentence with the thing, the value and the remedy."""
    name, settings = arrival.sequence_id, world.settings
    if not SEQUENCE_ID.fullmatch(name):
        return ErrorReason.INVALID_REQUEST, (
            f"sequence id {name[:140]!r} is not 1 to 128 of letters, digits and . _ : / -: choose another id"
        )
    if name in world.sequences:
        return (
            ErrorReason.SEQUENCE_ID_IN_USE,
            f"sequence id {name} is in use: choose an id that no living sequence has",
        )
    if arrival.kind not in KINDS:
        return (
            ErrorReason.INVALID_REQUEST,
            f"kind of {name} is {arrival.kind!r}: give one of {', '.join(KINDS)}",
        )
    for field in ("prompt_tokens", "max_output_tokens"):
        if getattr(arrival, field) < 1:
            return (
                ErrorReason.INVALID_REQUEST,
                f"{field} of {name} is {getattr(arrival, field)}: give at least 1",
            )
    tokens = arrival.prompt_tokens + arrival.max_output_tokens
    if tokens > settings.max_sequence_tokens:
        return ErrorReason.TOO_MANY_TOKENS, (
            f"{name} has {arrival.prompt_tokens} prompt and {arrival.max_output_tokens} output tokens, {tokens} "
            f"together, and the longest sequence is {settings.max_sequence_tokens}: shorten it or raise --max-seq-len"
        )
    if world.seats and arrival.demand > world.seats:
        return ErrorReason.DEMAND_EXCEEDS_CAP, (
            f"{name} needs {arrival.demand} slots at once and the group holds {world.seats}: ask for fewer"
        )
    if world.lanes.waiting_count >= settings.waiting_max:
        return ErrorReason.QUEUE_FULL, (
            f"{world.lanes.waiting_count} sequences wait and {settings.waiting_max} may: retry {name} later"
        )
    return None, ""


def _named(world: World, session: Session, fact: Cancelled | Ready) -> None:
    sequence = world.sequences.get(fact.sequence_id)
    if sequence is None or sequence.session_id != session.id:
        world.refused_by_reason["SEQUENCE_UNKNOWN"] += fact.sequence_id not in world.ended
        return
    if isinstance(fact, Cancelled):
        cancel(world, session, sequence)
    elif sequence.engine_word and sequence.state is _S.WAITING:
        world.lanes.leave(sequence, world.now_ms)
        sequence.engine_word = ""
        world.enqueue(sequence)


def cancel(world: World, session: Session, sequence: Sequence) -> None:
    """Ends it in whatever state it is; one in transfer ends when the transfer does (scenario D03)."""
    match sequence.state:
        case _S.WAITING:
            end_waiting(world, sequence, "cancelled")
        case _S.BINDING:
            retire(world, sequence, "cancelled", last_step=0)  # nobody was told: no step uses it
        case _S.TRANSFER_IN | _S.TRANSFER_OUT | _S.LOST:
            sequence.ending = sequence.ending or "cancelled"
        case _S.RETIRING:
            pass  # the first end counts (scenario L15)
        case _:
            retire(world, sequence, "cancelled", last_step=session.step)


def _owned(
    world: World, session: Session, fact: Finished | TransferReported | GrantAnswered | Suspension | LetGo
) -> None:
    """A fact about an ownership; a stale or foreign one changes nothing (rule C3)."""
    sequence = world.sequences.get(fact.sequence_id)
    if sequence is None or sequence.session_id != session.id or not _is_current(sequence, fact.generation):
        world.refused_by_reason["STALE_GENERATION"] += 1
        return
    match fact:
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
            fence(world, sequence)


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
    stop_running(world, sequence)
    order_releases(world, sequence)
    world.move(sequence, _E.DECLINED)
    sequence.engine_word = word
    world.requeue(sequence)


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

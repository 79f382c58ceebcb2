"""A session's whole list, the first message of every Step stream (rules D3, D5).

It replaces what the scheduler knew of the session: absence is release, a held ownership that the
ledgers do not have is RECOMPUTE, a bound slot that nobody of the session holds is given back.
"""

from __future__ import annotations

from scheduler_svc.core.caching import reclaim
from scheduler_svc.core.effects import Decisions, Recompute, ReleaseOrder
from scheduler_svc.core.ending import cancel_binding, end_waiting, fence, order_releases, retire, stop_running
from scheduler_svc.core.events import Held, LedgerEntry, SessionList
from scheduler_svc.core.facts import apply_fact, change_waiter
from scheduler_svc.core.limits import watch_again, watch_transfer
from scheduler_svc.core.order import place
from scheduler_svc.core.preemption import may_be_preempted
from scheduler_svc.core.rank_events import lose
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.world import World
from stateroom.residency.states import HOLDS_SLOT, SequenceEvent, SequenceState

__all__ = ["apply_list"]

_S = SequenceState


def apply_list(world: World, session: Session, listed: SessionList) -> None:
    """Replaces everything known of the session."""
    session.outbox = Decisions(agreement=world.committed)
    session.outbox.attach += [r.number for r in world.ranks if session.id in r.unattached and r.ledger_heard]
    held = {h.arrival.sequence_id: h for h in listed.held}
    waiting = {a.sequence_id: a for a in listed.waiting}
    for sequence in [s for s in world.sequences.values() if s.session_id == session.id]:
        _settle_known(world, session, sequence, held, sequence.id in waiting)
    for claim in listed.held:
        if claim.arrival.sequence_id not in world.sequences:
            _adopt(world, session, claim)
    for arrival in listed.waiting:
        known = world.sequences.get(arrival.sequence_id)
        if known is None:
            apply_fact(world, session, arrival)
        elif known.waits and (known.demand, known.engine_word) != (arrival.demand, arrival.engine_hold):
            change_waiter(world, known, arrival.demand, arrival.engine_hold)
        elif known.waits:  # told again: its place in a queue that the SDK has to learn
            lane = world.lanes.lane_of(known)
            session.outbox.queued.append((known.id, lane.number, world.lanes.ahead_of(known)))
    _release_unclaimed(world, session)
    session.listed = True


def _settle_known(
    world: World, session: Session, sequence: Sequence, held: dict[str, Held], listed_waiting: bool
) -> None:
    """One known sequence against the list."""
    claim = held.get(sequence.id)
    if claim is not None and claim.generation == sequence.generation:
        if sequence.cancel_asked:
            session.outbox.cancelled.append(sequence.id)
        _settle_held(world, session, sequence, claim)
    elif sequence.waits:
        if not listed_waiting:
            end_waiting(world, sequence, "cancelled", message="its session does not list it any more")
    elif sequence.state is _S.BINDING:
        if not listed_waiting:
            cancel_binding(world, sequence)
    elif listed_waiting:
        _give_back(world, sequence)
    else:  # absence is release: no step of the session uses it any more
        if sequence.state is not _S.RETIRING:
            retire(world, sequence, sequence.ending or "finished", last_step=session.completed_step)
        else:
            sequence.last_step = session.completed_step
            fence(world, sequence)


def _settle_held(world: World, session: Session, sequence: Sequence, claim: Held) -> None:
    """Held by both: the list says how far it is. What must be told again is told again."""
    over = sequence.ending and claim.state is _S.LOST  # cancelled in mid-transfer, then let go
    if (claim.state is _S.RETIRING or over) and sequence.state is not _S.RETIRING:  # it ended, lost or not
        retire(world, sequence, sequence.ending or "finished", claim.last_step)
    elif sequence.state is _S.LOST and sequence.let_go is False:
        session.outbox.recompute.append(
            Recompute(sequence.id, sequence.generation, "its state was lost before the stream broke")
        )
        if claim.state is _S.LOST:
            sequence.let_go, sequence.last_step = True, claim.last_step
            fence(world, sequence)
    elif sequence.state in (_S.LOST, _S.RETIRING) or sequence.ending:
        return  # it ends, or waits for a transfer that does
    elif claim.state is _S.LOST and sequence.can(SequenceEvent.RANK_LOST):
        stop_running(world, sequence)
        world.move(sequence, SequenceEvent.RANK_LOST)
        sequence.last_step = claim.last_step
        fence(world, sequence)
    else:
        _follow(world, session, sequence, claim)


def _follow(world: World, session: Session, sequence: Sequence, claim: Held) -> None:
    """Facts and answers that the broken stream lost stand in the state that the list gives (rule D5)."""
    if not HOLDS_SLOT[claim.state]:
        return
    stop_running(world, sequence)
    prompt_tokens = sequence.arrival.prompt_tokens
    sequence.computed_tokens = min(claim.computed_tokens, prompt_tokens)
    state = claim.state
    if state is _S.CONTEXT and not sequence.context_left:
        state = _S.TRANSFER_OUT if sequence.arrival.kind == "context_only" else _S.DECODE
    old, sequence.state = sequence.state, state
    world.recount(sequence, old, state)
    _start_adopted(world, session, sequence)
    if state is _S.CACHED and sequence.lost_on:
        reclaim(world, sequence)


def _give_back(world: World, sequence: Sequence) -> None:
    """Granted, and the executor never heard of it: it waits again, in its place (rule A11)."""
    stop_running(world, sequence)
    order_releases(world, sequence)
    session = world.sessions[sequence.session_id]
    session.kv.give_back(sequence)
    old, sequence.state = sequence.state, _S.WAITING
    world.recount(sequence, old, _S.WAITING)
    world.requeue(sequence)
    watch_again(world, sequence)


def _adopt(world: World, session: Session, claim: Held) -> None:
    """A sequence this scheduler never knew: it goes on where every rank has it bound (rule D3)."""
    world.arrivals_count += 1
    sequence = Sequence(
        arrival=claim.arrival,
        session_id=session.id,
        arrived_ms=world.now_ms,
        number=world.arrivals_count,
        order=(0, 0, 0),  # placed when it waits again
        state=claim.state if HOLDS_SLOT[claim.state] else _S.DECODE,
        slots=claim.slots,
        generation=claim.generation,
        computed_tokens=claim.computed_tokens,
        last_step=claim.last_step,
    )
    missing = [r.number for r in world.ranks if r.ledger_heard and not _has(world, r.number, claim)]
    world.add(sequence)
    world.mirror.claim(claim.slots, claim.generation)
    sequence.lost_on = set(missing)
    if len(missing) == world.settings.ranks_count:
        sequence.slots = ()
    sequence.order = place(world.settings, sequence)
    _start_adopted(world, session, sequence)
    if missing and HOLDS_SLOT[sequence.state] and sequence.state not in (_S.LOST, _S.RETIRING):
        lose(world, sequence, f"rank {missing[0]} does not have its state any more")


def _has(world: World, rank: int, claim: Held) -> bool:
    def owner(slot: int) -> LedgerEntry | None:
        return world.mirror.foreign.get(slot, {}).get(rank)

    return all(
        (entry := owner(slot)) is not None and entry.generation == claim.generation for slot in claim.slots
    )


def _start_adopted(world: World, session: Session, sequence: Sequence) -> None:
    """It goes on in its state: the work of steps, and what watches over it."""
    match sequence.state:
        case _S.DECODE:
            session.decode_count += 1
        case _S.CONTEXT:
            session.chunking[sequence.id] = sequence
        case _S.CACHED:
            world.cached[sequence.id] = sequence
        case _S.RETIRING | _S.LOST:
            sequence.ending = "finished" if sequence.state is _S.RETIRING else ""
            fence(world, sequence)
        case _S.GENERATION_INIT | _S.TRANSFER_IN | _S.TRANSFER_OUT:
            watch_transfer(world, sequence)
    if sequence.state in (_S.DECODE, _S.CONTEXT):
        may_be_preempted(world, sequence)


def _release_unclaimed(world: World, session: Session) -> None:
    """Ledger entries of this session that its list does not hold (rule D3: bound and not held)."""
    for slot, claims in list(world.mirror.foreign.items()):
        for number, entry in list(claims.items()):
            if entry.session_id == session.id:
                world.ranks[number].releases.append(ReleaseOrder(slot, entry.generation))
                world.mirror.releasing(number, slot)
                del claims[number]
        if not claims:
            del world.mirror.foreign[slot]

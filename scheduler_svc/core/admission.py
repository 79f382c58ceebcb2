"""The admission pass: which waiters start now (rules A1, A2, A4, A5, A8; bind before grant, C1).

One gate for a first context chunk and for a disaggregated init. A waiter that does not fit is passed
over; it never ends the pass, unless the order policy makes it a barrier. Only heads of lanes are
looked at, so a pass costs the lanes and the admissions, not the waiters.
"""

from __future__ import annotations

from scheduler_svc.core.caching import reclaim_cached
from scheduler_svc.core.demand import refuse
from scheduler_svc.core.effects import BindOrder, Grant
from scheduler_svc.core.ending import HOLDERS_LINKED, end_wait, order_releases, stop_running
from scheduler_svc.core.events import Generation
from scheduler_svc.core.lanes import Lane
from scheduler_svc.core.limits import watch_again, watch_transfer
from scheduler_svc.core.obstacles import (
    CONTENDED,
    Obstacle,
    engine_hold,
    group_gate,
    needs_tokens,
    obstacle_of,
)
from scheduler_svc.core.planning import first_chunk_tokens
from scheduler_svc.core.preemption import make_room, may_be_preempted
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.world import World
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceEvent

__all__ = ["admit", "confirm", "grant", "take_back"]

NO_SLOT: Generation = (0, 0)  # of demand 0: there is no ownership to name, and no handle that could


def admit(world: World) -> None:
    """Starts all that may start, and gives every lane that still waits its one reason (rule A7)."""
    gate = group_gate(world)
    open_lanes = world.lanes.lanes
    blocked: list[tuple[Lane, Sequence]] = []
    while open_lanes:
        lane, head = _next(world, open_lanes)
        if head.demand > world.seats > 0:  # the cap fell while it held or was bound, and it waits again
            refuse(world, head)
            if not lane.count:
                open_lanes.remove(lane)
            continue
        obstacle = engine_hold(lane, head) or gate or obstacle_of(world, head)
        if obstacle is None:
            _choose(world, head)
            if not lane.count:
                open_lanes.remove(lane)
            _pass_over(world, blocked, head)
            continue
        open_lanes.remove(lane)
        if gate is None and obstacle[0] is WaitReason.RESIDENCY_CAP:
            reclaim_cached(world, head.demand * lane.count)
            make_room(world, head)
        if gate is None and obstacle[0] in CONTENDED:
            first = next((h for _, h in blocked if h.arrival.tenant != head.arrival.tenant), None)
            if first is not None and head.order < first.order:  # it would be next by arrival
                obstacle = (
                    WaitReason.TENANT_SHARE,
                    f"tenant {first.arrival.tenant!r} goes first by its share",
                )
        _block(world, lane, head, obstacle)
        blocked.append((lane, head))
        if gate is None and obstacle[0] in CONTENDED and _is_barrier(world, head):
            gate = (WaitReason.POLICY_ORDER, f"behind {head.id}")


def _next(world: World, open_lanes: list[Lane]) -> tuple[Lane, Sequence]:
    """The lane whose head is looked at next: the tenant with the least of its share, then the order."""
    best: tuple[tuple[int, tuple[int, int, int]], Lane, Sequence] | None = None
    for lane in open_lanes:
        head = lane.head
        assert head is not None, f"{lane} has no head"
        world.visited_count += 1
        key = (world.shares.time_of(head.arrival.tenant), head.order)
        if best is None or key < best[0]:
            best = (key, lane, head)
    assert best is not None, "no lane is open"
    return best[1], best[2]


def _block(world: World, lane: Lane, head: Sequence, obstacle: Obstacle) -> None:
    """The lane's one reason; told to the sessions only when it is another one."""
    reason, detail = obstacle
    if not head.blocked_by:
        head.blocked_by = _first_holders(world)
    if lane.clock.change(reason, detail, world.now_ms):
        for session in world.sessions.values():
            session.outbox.lanes[lane.number] = obstacle


def _first_holders(world: World) -> tuple[str, ...]:
    """The longest-holding owners: those who block when it first blocks (section 7)."""
    return tuple(holder for holder, _ in zip(world.residents, range(HOLDERS_LINKED), strict=False))


def _pass_over(world: World, blocked: list[tuple[Lane, Sequence]], chosen: Sequence) -> None:
    """Notes on every head that came before the chosen one that it was passed over (rule A4)."""
    for _, head in blocked:
        if head.order < chosen.order and head.passed_over_ms is None:
            head.passed_over_ms = world.now_ms


def _is_barrier(world: World, head: Sequence) -> bool:
    """Nobody passes it: by the strict policy, after too long, or since others were stopped for it."""
    if world.settings.strict_order or world.preempting_for == head.id:
        return True
    since_ms = head.passed_over_ms
    return since_ms is not None and world.now_ms - since_ms >= world.settings.starvation_ms


def _choose(world: World, sequence: Sequence) -> None:
    """Picks slots and binds them on every rank; the executor is told when all have confirmed (C1)."""
    session = world.sessions[sequence.session_id]
    world.shares.charge(sequence)
    world.dequeue(sequence)
    if needs_tokens(session, sequence):
        tokens = first_chunk_tokens(world.settings, sequence, session.left_tokens)
        session.kv.take(sequence, session.kv.need(sequence, tokens))
        session.left_tokens -= tokens + world.settings.draft_tokens * (tokens == sequence.context_left)
        session.left_sequences -= 1
    else:
        session.kv.take(sequence, session.kv.need(sequence, sequence.arrival.prompt_tokens))
    sequence.chosen_ms = world.now_ms
    sequence.generation = world.new_generation() if sequence.demand else NO_SLOT
    sequence.slots = world.mirror.take(sequence.demand)
    world.move(sequence, SequenceEvent.CHOSEN)
    if not sequence.demand:  # takes no slot, so there is nothing to bind (rule A11)
        grant(world, sequence)
        return
    world.binding[sequence.id] = sequence
    world.inits_binding += sequence.arrival.kind == "generation_init"
    for rank in world.ranks:
        sequence.unconfirmed.add(rank.number)
        rank.binding.append((sequence, sequence.generation))
        for slot in sequence.slots:
            rank.binds.append(BindOrder(slot, sequence.generation, sequence.id, sequence.session_id))


def confirm(world: World, sequence: Sequence, rank: int, refused: bool) -> None:
    """One rank has answered the bind; with the last one the grant is told or taken back."""
    sequence.unconfirmed.discard(rank)
    if refused:
        sequence.refused = True
        sequence.lost_on.add(rank)
    if sequence.unconfirmed:
        return
    if sequence.refused:
        take_back(world, sequence)
    else:
        grant(world, sequence)


def grant(world: World, sequence: Sequence) -> None:
    """Every rank holds it: the executor is told (rules C1, A11)."""
    if sequence.demand:
        stop_running(world, sequence)
    session = world.sessions[sequence.session_id]
    if sequence.arrival.kind == "generation_init" and not sequence.state_kept:
        world.move(sequence, SequenceEvent.GRANTED_INIT)
        watch_transfer(world, sequence)
    elif sequence.context_left:
        world.move(sequence, SequenceEvent.GRANTED_CONTEXT)
        session.chunking[sequence.id] = sequence
    else:
        world.move(sequence, SequenceEvent.GRANTED_DECODE)
        session.decode_count += 1
    sequence.told_ms = world.now_ms
    sequence.resumed, sequence.state_kept = sequence.state_kept, False
    may_be_preempted(world, sequence)
    session.outbox.grants.append(
        Grant(sequence.id, sequence.slots, sequence.generation, sequence.waited_ms, sequence.computed_tokens)
    )
    end_wait(world, sequence, "admitted")


def take_back(world: World, sequence: Sequence) -> None:
    """A grant nobody was told of is undone without a word; its request keeps its place (rule C1)."""
    stop_running(world, sequence)
    order_releases(world, sequence)
    world.sessions[sequence.session_id].kv.give_back(sequence)
    world.move(sequence, SequenceEvent.TAKEN_BACK_KEPT if sequence.state_kept else SequenceEvent.TAKEN_BACK)
    world.requeue(sequence)
    watch_again(world, sequence)

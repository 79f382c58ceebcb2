"""The admission pass: which waiters start now (rules A1, A2, A4, A5, A8; bind before grant, C1).

One gate for a first context chunk and for a disaggregated init. A waiter that does not fit is passed
over; it never ends the pass, unless the order policy makes it a barrier. Only heads of lanes are
looked at, so a pass costs the lanes and the admissions, not the waiters.
"""

from __future__ import annotations

from scheduler_svc.core.effects import BindOrder, Grant
from scheduler_svc.core.ending import HOLDERS_LINKED, end_wait, order_releases, stop_running
from scheduler_svc.core.lanes import Lane
from scheduler_svc.core.planning import first_chunk_tokens
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.world import World
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceEvent, SequenceState

__all__ = ["admit", "confirm", "grant", "take_back"]

Obstacle = tuple[WaitReason, str]


def admit(world: World) -> None:
    """Starts all that may start, and gives every lane that still waits its one reason (rule A7)."""
    gate = _group_gate(world)
    open_lanes = world.lanes.lanes
    while open_lanes:
        lane = min(open_lanes, key=_head_order)
        head = lane.head
        assert head is not None, f"{lane} has no head"
        obstacle = _engine_hold(lane, head) or gate or _obstacle(world, head)
        if obstacle is None:
            _choose(world, head)
            if not lane.count:
                open_lanes.remove(lane)
            _pass_over(world, open_lanes, head)
            continue
        _block(world, lane, head, obstacle)
        open_lanes.remove(lane)
        if gate is None and obstacle[0] is not WaitReason.ENGINE and _is_barrier(world, head):
            gate = (WaitReason.POLICY_ORDER, f"behind {head.id}")


def _head_order(lane: Lane) -> tuple[int, int]:
    head = lane.head
    assert head is not None, f"{lane} has no head"
    return head.order


def _engine_hold(lane: Lane, head: Sequence) -> Obstacle | None:
    return (WaitReason.ENGINE, head.engine_word) if lane.key[0] == "engine" else None


def _group_gate(world: World) -> Obstacle | None:
    """What holds back everybody."""
    if world.draining:
        return (WaitReason.DRAINING, "the group drains")
    if world.ranks.pending_count:
        rank = world.ranks.first_pending
        assert rank is not None, f"{world.ranks.pending_count} ranks pending and none found"
        return (WaitReason.RANK_PENDING, f"rank {rank.number} {rank.status}")
    if not world.seats:
        return (WaitReason.RANK_PENDING, "no agreement yet")
    return None


def _obstacle(world: World, head: Sequence) -> Obstacle | None:
    """Why this waiter cannot start now, or None. Its slots come first: they are for life."""
    if head.demand:
        obstacle = _no_slot(world, head.demand)
        if obstacle is not None:
            return obstacle
    session = world.sessions[head.session_id]
    if head.arrival.kind == "generation_init":
        limit = world.settings.transfers_max
        arriving = world.count_by_state[SequenceState.GENERATION_INIT]
        arriving += world.count_by_state[SequenceState.TRANSFER_IN] + world.inits_binding
        return (WaitReason.TRANSFER_LIMIT, f"{limit} transfers") if limit and arriving >= limit else None
    if session.left_sequences < 1:
        return (WaitReason.BATCH_LIMIT, f"{world.settings.asked} sequences a step")
    if first_chunk_tokens(world.settings, head, session.left_tokens) == 0:
        return (WaitReason.TOKEN_BUDGET, f"{world.settings.max_step_tokens} tokens a step")
    return None


def _no_slot(world: World, demand: int) -> Obstacle | None:
    """All or nothing (rule A5): `demand` slots within the cap and free on every rank."""
    mirror = world.mirror
    if world.held_slots + mirror.foreign_count + demand > world.seats:
        if mirror.foreign_count and world.held_slots + demand <= world.seats:
            return (
                WaitReason.RECOVERING,
                f"{mirror.foreign_count} slots of sessions that were not heard yet",
            )
        if world.cap is None:
            return (WaitReason.BATCH_LIMIT, f"{world.seats} sequences asked, all ranks afford them")
        return (WaitReason.RESIDENCY_CAP, _limits(world))
    if mirror.grantable_count < demand:
        rank, count = mirror.slowest_scrubbing()
        return (WaitReason.SCRUBBING, f"rank {rank} scrubs {count} slots")
    return None


def _limits(world: World) -> str:
    ranks = ", ".join(str(r) for r in world.agreement.limiting_ranks)
    return f"cap {world.cap}" + (f", limited by rank {ranks}" if ranks else "")


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


def _pass_over(world: World, open_lanes: list[Lane], chosen: Sequence) -> None:
    """Notes on every lane whose head came before the chosen one that it was passed over (rule A4)."""
    for lane in world.lanes.lanes:
        head = lane.head
        if (
            head is not None
            and lane not in open_lanes
            and head.order < chosen.order
            and head.passed_over_ms is None
        ):
            head.passed_over_ms = world.now_ms


def _is_barrier(world: World, head: Sequence) -> bool:
    if world.settings.strict_order:
        return True
    since_ms = head.passed_over_ms
    return since_ms is not None and world.now_ms - since_ms >= world.settings.starvation_ms


def _choose(world: World, sequence: Sequence) -> None:
    """Picks slots and binds them on every rank; the executor is told when all have confirmed (C1)."""
    world.lanes.leave(sequence, world.now_ms)
    session = world.sessions[sequence.session_id]
    if sequence.arrival.kind != "generation_init":
        session.left_tokens -= first_chunk_tokens(world.settings, sequence, session.left_tokens)
        session.left_sequences -= 1
    sequence.chosen_ms = world.now_ms
    sequence.generation = world.new_generation()
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
    init = sequence.arrival.kind == "generation_init"
    world.move(sequence, SequenceEvent.GRANTED_INIT if init else SequenceEvent.GRANTED_CONTEXT)
    sequence.told_ms = world.now_ms
    session = world.sessions[sequence.session_id]
    if not init:
        session.chunking[sequence.id] = sequence
    session.outbox.grants.append(Grant(sequence.id, sequence.slots, sequence.generation, sequence.waited_ms))
    end_wait(world, sequence, "admitted")


def take_back(world: World, sequence: Sequence) -> None:
    """A grant nobody was told of is undone without a word; its request keeps its place (rule C1)."""
    stop_running(world, sequence)
    order_releases(world, sequence)
    world.move(sequence, SequenceEvent.TAKEN_BACK)
    world.requeue(sequence)

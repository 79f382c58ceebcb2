"""Why a waiter cannot start now: one reason, found in a fixed order (rule A7).

First what holds everybody back, then its slots, which are for life, then the transfer or the tokens and
pages of its first chunk.
"""

from __future__ import annotations

from scheduler_svc.core.lanes import Lane
from scheduler_svc.core.planning import first_chunk_tokens
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.world import World
from stateroom.residency.phrases import counted, ranks_text
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState

__all__ = ["CONTENDED", "Obstacle", "engine_hold", "group_gate", "needs_tokens", "obstacle_of"]

Obstacle = tuple[WaitReason, str]

# What waiters compete for: only these make a barrier or a tenant's turn.
CONTENDED = frozenset(
    {
        WaitReason.RESIDENCY_CAP,
        WaitReason.SCRUBBING,
        WaitReason.BATCH_LIMIT,
        WaitReason.TOKEN_BUDGET,
        WaitReason.KV_PAGES,
        WaitReason.TENANT_SHARE,
    }
)


def engine_hold(lane: Lane, head: Sequence) -> Obstacle | None:
    """The engine itself is not ready for the waiters of this lane."""
    return (WaitReason.ENGINE, head.engine_word) if lane.key[0] == "engine" else None


def group_gate(world: World) -> Obstacle | None:
    """What holds back everybody."""
    if world.draining:
        return (WaitReason.DRAINING, "the group drains")
    if world.ranks.pending_count:
        rank = world.ranks.first_pending
        assert rank is not None, f"{world.ranks.pending_count} ranks pending and none found"
        return (WaitReason.RANK_PENDING, f"rank {rank.number} {rank.status}")
    if world.committed is None:
        return (WaitReason.RANK_PENDING, "no agreement yet")
    if not world.seats:
        return (WaitReason.RESIDENCY_CAP, _limits(world))
    return None


def needs_tokens(session: Session, sequence: Sequence) -> bool:
    """True if it starts with a context chunk that Stateroom plans."""
    transfers = sequence.arrival.kind == "generation_init" or sequence.state_kept
    return not transfers and not session.engine_budgets


def obstacle_of(world: World, head: Sequence) -> Obstacle | None:
    """Why this waiter cannot start now, or None."""
    session = world.sessions[head.session_id]
    if head.demand:
        obstacle = _no_slot(world, head)
        if obstacle is not None:
            return obstacle
    if head.arrival.kind == "generation_init" and not head.state_kept:
        obstacle = _transfers(world)
        if obstacle is not None:
            return obstacle
    if not needs_tokens(session, head):
        return _pages(session, head, head.arrival.prompt_tokens)
    if session.left_sequences < 1:
        return (WaitReason.BATCH_LIMIT, f"{world.settings.asked} sequences a step")
    tokens = first_chunk_tokens(world.settings, head, session.left_tokens)
    if not tokens:
        return (WaitReason.TOKEN_BUDGET, f"{world.settings.max_step_tokens} tokens a step")
    return _pages(session, head, tokens)


def _pages(session: Session, head: Sequence, tokens: int) -> Obstacle | None:
    lacks = session.kv.lacks(session.kv.need(head, tokens))
    return (WaitReason.KV_PAGES, lacks) if lacks else None


def _transfers(world: World) -> Obstacle | None:
    limit = world.settings.transfers_max
    arriving = world.count_by_state[SequenceState.GENERATION_INIT]
    arriving += world.count_by_state[SequenceState.TRANSFER_IN] + world.inits_binding
    return (WaitReason.TRANSFER_LIMIT, f"{limit} transfers") if limit and arriving >= limit else None


def _no_slot(world: World, head: Sequence) -> Obstacle | None:
    """All or nothing (rule A5): its slots within the cap and free on every rank.

    SCRUBBING is the reason of a lane only if all its waiters would fit once the rows are zero; else they
    wait for the cap, of which a row that is being zeroed is a part.
    """
    mirror, demand = world.mirror, head.demand
    if world.held_slots + mirror.foreign_count + demand > mirror.seats:
        if mirror.foreign_count and world.held_slots + demand <= mirror.seats:
            return (
                WaitReason.RECOVERING,
                f"{mirror.foreign_count} slots of sessions that were not heard yet",
            )
        if world.cap is None:
            return (WaitReason.BATCH_LIMIT, f"{world.seats} sequences asked, all ranks afford them")
        return (WaitReason.RESIDENCY_CAP, _limits(world))
    if mirror.grantable_count < demand:
        waiting_slots = world.lanes.lane_of(head).count * demand
        if world.cap is not None and world.held_slots + mirror.foreign_count + waiting_slots > mirror.seats:
            return (WaitReason.RESIDENCY_CAP, _limits(world))
        rank, count = mirror.slowest_scrubbing()
        return (WaitReason.SCRUBBING, f"rank {rank} scrubs {counted(count, 'slot')}")
    return None


def _limits(world: World) -> str:
    ranks = ranks_text(world.agreement.limiting_ranks)
    return f"cap {world.cap}" + (f", limited by {ranks}" if ranks else "")

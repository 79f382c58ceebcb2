"""Derives every count of the core a second way and names what differs (rules A3, C5)."""

from __future__ import annotations

from collections import Counter

from scheduler_svc.core.world import World
from stateroom.residency.states import HOLDS_SLOT, SequenceState

__all__ = ["check_integrity"]


def check_integrity(world: World) -> list[str]:
    """One sentence for each broken invariant; empty if all hold. Costs a scan: tests and idle only."""
    return [*_counts(world), *_owners(world), *_queue(world), *_work(world)]


def _counts(world: World) -> list[str]:
    errors = []
    by_state = Counter(s.state for s in world.sequences.values() if s.demand)
    kept = Counter({state: n for state, n in world.count_by_state.items() if n})
    if by_state != kept:
        errors.append(f"states are {dict(by_state)} and counted as {dict(kept)}")
    owners = {s.id for s in world.sequences.values() if HOLDS_SLOT[s.state] and s.demand}
    if owners != set(world.residents):
        errors.append(
            f"owners by state differ from the ledger in {sorted(owners ^ set(world.residents))[:4]}"
        )
    held = sum(s.demand for s in world.residents.values())
    if held != world.held_slots:
        errors.append(f"{held} slots are held and {world.held_slots} are counted")
    cached = [s for s in world.residents.values() if s.state is SequenceState.CACHED]
    reclaiming = sum(s.demand for s in cached if s.id not in world.cached)
    if reclaiming != world.reclaiming_slots:
        errors.append(f"{reclaiming} cached slots are reclaimed and {world.reclaiming_slots} are counted")
    return errors


def _owners(world: World) -> list[str]:
    errors = []
    slots = [slot for s in world.residents.values() for slot in s.slots]
    doubled = [slot for slot, n in Counter(slots).items() if n > 1]
    if doubled:
        errors.append(f"slots {doubled[:4]} have two owners")
    reserved = world.mirror.reserved_slots
    outside = [slot for slot in slots if slot < reserved]
    if outside:
        errors.append(f"reserved slots {outside[:4]} have an owner")
    seats = min(world.seats, world.ranks.enforced_seats())
    if seats != world.mirror.seats:
        errors.append(f"grants go to {world.mirror.seats} seats and {seats} are agreed and confirmed")
    generations = Counter(s.generation for s in world.residents.values())
    if any(n > 1 for n in generations.values()):
        errors.append("two residents share a generation")
    return errors


def _queue(world: World) -> list[str]:
    errors = []
    waiting = sum(s.waits for s in world.sequences.values())
    in_lanes = sum(lane.count for lane in world.lanes.lanes)
    if not waiting == in_lanes == world.lanes.waiting_count:
        errors.append(f"{waiting} wait, {in_lanes} stand in lanes, {world.lanes.waiting_count} are counted")
    unexplained = [lane.number for lane in world.lanes.lanes if lane.clock.spell is None]
    if unexplained:
        errors.append(f"lanes {unexplained} wait for no reason")
    return errors


def _work(world: World) -> list[str]:
    errors = []
    for session in world.sessions.values():
        mine = [s for s in world.sequences.values() if s.session_id == session.id]
        decoding = sum(s.state is SequenceState.DECODE for s in mine)
        if decoding != session.decode_count:
            errors.append(f"{decoding} of session {session.id} decode and {session.decode_count} are counted")
        context = {s.id for s in mine if s.state is SequenceState.CONTEXT}
        if context != set(session.chunking):
            errors.append(
                f"context work of session {session.id} differs in {sorted(context ^ set(session.chunking))[:4]}"
            )
    binding = {s.id for s in world.sequences.values() if s.state is SequenceState.BINDING}
    if binding != set(world.binding):
        errors.append(f"binds under way differ in {sorted(binding ^ set(world.binding))[:4]}")
    return errors

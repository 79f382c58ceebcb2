"""States kept only as caches (rule A11): counted as held, and reclaimed before anyone waits for a slot."""

from __future__ import annotations

from scheduler_svc.core.effects import Reclaim
from scheduler_svc.core.ending import stop_running
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.world import World
from stateroom.residency.states import SequenceEvent

__all__ = ["keep_as_cache", "reclaim_cached"]


def keep_as_cache(world: World, sequence: Sequence) -> None:
    """It finished; its state stays in its slot until the slot is needed."""
    stop_running(world, sequence)
    world.move(sequence, SequenceEvent.CACHE)
    world.cached[sequence.id] = sequence


def reclaim_cached(world: World, demand: int) -> None:
    """Asks the executor to forget the oldest caches, as many as the waiter lacks slots."""
    lacking = world.held_slots + world.mirror.foreign_count + demand - world.seats
    while lacking > 0 and world.cached:
        sequence = world.cached.pop(next(iter(world.cached)))
        lacking -= sequence.demand
        reclaim = Reclaim(sequence.id, sequence.generation)
        world.sessions[sequence.session_id].outbox.reclaim.append(reclaim)

"""States kept only as caches (rule A11): counted as held, and reclaimed before anyone waits for a slot."""

from __future__ import annotations

from scheduler_svc.core.effects import Reclaim
from scheduler_svc.core.ending import stop_running
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.world import World
from stateroom.residency.states import SequenceEvent

__all__ = ["keep_as_cache", "reclaim", "reclaim_cached"]


def keep_as_cache(world: World, sequence: Sequence) -> None:
    """It finished; its state stays in its slot until the slot is needed."""
    stop_running(world, sequence)
    world.move(sequence, SequenceEvent.CACHE)
    world.cached[sequence.id] = sequence


def reclaim_cached(world: World, slots: int) -> None:
    """Asks the executor to forget the oldest caches, as many as the waiters lack slots; what comes free
    already counts, so that no cache is given up for a place that another one makes."""
    lacking = world.lacking(slots)
    while lacking > 0 and world.cached:
        sequence = next(iter(world.cached.values()))
        lacking -= sequence.demand
        reclaim(world, sequence)


def reclaim(world: World, sequence: Sequence) -> None:
    """Its Finish gives the slot back; told once."""
    if world.cached.pop(sequence.id, None) is None:
        return
    world.reclaiming_slots += sequence.demand
    session = world.sessions[sequence.session_id]
    session.outbox.reclaim.append(Reclaim(sequence.id, sequence.generation))

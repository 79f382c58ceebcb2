"""More slots than the group has: such a waiter fails at once, with the numbers (rule A5)."""

from __future__ import annotations

from scheduler_svc.core.ending import end_waiting
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.world import World
from stateroom.residency.reasons import ErrorReason

__all__ = ["refuse", "refuse_too_demanding", "too_demanding"]


def too_demanding(name: str, demand: int, seats: int) -> str:
    """One sentence with the remedy."""
    return f"{name} needs {demand} slots at once and the group holds {seats}: ask for fewer"


def refuse(world: World, sequence: Sequence) -> None:
    """A waiter that cannot start until the cap rises."""
    sentence = too_demanding(sequence.id, sequence.demand, world.seats)
    world.sessions[sequence.session_id].outbox.reject(sequence.id, ErrorReason.DEMAND_EXCEEDS_CAP, sentence)
    end_waiting(world, sequence, "rejected", ErrorReason.DEMAND_EXCEEDS_CAP, sentence)


def refuse_too_demanding(world: World) -> None:
    """The cap fell, or a demand grew."""
    for lane in world.lanes.lanes:
        while (head := lane.head) is not None and head.demand > world.seats:
            refuse(world, head)

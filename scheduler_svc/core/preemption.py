"""Preemption at the cap (rule A4, C9): a waiter of strictly higher priority takes the place of the
lowest and youngest residents, each at most `preemptions_max` times.

The victims are told to stop; what they free is kept for the one they were stopped for (scenario A14),
and what is already coming free counts, so that nobody is stopped twice for one place (A13).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from scheduler_svc.core.effects import Preemption
from scheduler_svc.core.ending import stop_running
from scheduler_svc.core.events import Generation
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.world import World
from stateroom.residency.states import SequenceEvent, SequenceState

__all__ = ["make_room", "may_be_preempted"]

STALE_KEPT = 64  # entries of ended residents before the heap is made anew
_STOPPABLE = (SequenceState.CONTEXT, SequenceState.DECODE)


def may_be_preempted(world: World, sequence: Sequence) -> None:
    """A resident that started or goes on: noted once an ownership, by priority, youngest first."""
    if world.settings.preemption != "off" and sequence.demand and not sequence.preemptible:
        sequence.preemptible = True
        heappush(world.preemptible, _entry(sequence))
        if len(world.preemptible) > 2 * len(world.residents) + STALE_KEPT:
            world.preemptible = [_entry(s) for s in world.residents.values() if s.preemptible]
            heapify(world.preemptible)


def _entry(sequence: Sequence) -> tuple[int, Generation, Sequence]:
    term, counter = sequence.generation
    return (sequence.arrival.priority, (-term, -counter), sequence)


def make_room(world: World, head: Sequence) -> None:
    """Stops as many residents as the waiter still lacks, all or none."""
    if world.settings.preemption == "off" or not head.demand:
        return
    lacking = world.lacking(head.demand)
    if lacking <= 0:
        return
    victims = _victims(world, head.arrival.priority, lacking)
    if not victims:
        return
    world.preempting_for = head.id
    for victim in victims:
        _stop(world, victim, head)


def _victims(world: World, priority: int, lacking: int) -> list[Sequence]:
    """The lowest and youngest below this priority, or none if they do not suffice."""
    found: list[Sequence] = []
    heap = world.preemptible
    while heap and lacking > 0 and heap[0][0] < priority:
        _, (term, counter), victim = heappop(heap)
        if victim.generation != (-term, -counter):
            continue
        victim.preemptible = False
        if victim.state not in _STOPPABLE:
            continue  # noted again when it goes on
        if victim.preemptions_count >= world.settings.preemptions_max:
            continue
        found.append(victim)
        lacking -= victim.demand
    if lacking > 0:
        for victim in found:
            may_be_preempted(world, victim)
        return []
    return found


def _stop(world: World, victim: Sequence, head: Sequence) -> None:
    stop_running(world, victim)
    world.move(victim, SequenceEvent.PREEMPTED)
    victim.let_go = False
    victim.preemptions_count += 1
    message = f"stopped for {head.id} of priority {head.arrival.priority}"
    keep = world.settings.preemption == "suspend"
    world.sessions[victim.session_id].outbox.preemptions.append(
        Preemption(victim.id, victim.generation, keep, message)
    )

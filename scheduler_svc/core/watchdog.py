"""No progress (rule A9): candidates exist, nothing is scheduled, and nothing that could release is in
flight. Found by count and time, named with numbers, told once; it never ends anything."""

from __future__ import annotations

from scheduler_svc.core.effects import NoProgress
from scheduler_svc.core.world import World
from stateroom.residency.states import SequenceState

__all__ = ["note_step", "watch"]

_MOVING = (
    SequenceState.BINDING,
    SequenceState.GENERATION_INIT,
    SequenceState.TRANSFER_IN,
    SequenceState.TRANSFER_OUT,
    SequenceState.RETIRING,
    SequenceState.LOST,
)


def note_step(world: World, worked: bool) -> None:
    """After a step was answered: did anything run?"""
    if worked or not (world.lanes.waiting_count or world.residents):
        world.idle_steps, world.progress_ms = 0, world.now_ms
        world.no_progress = ""
    else:
        world.idle_steps += 1


def watch(world: World) -> None:
    """On every tick."""
    settings = world.settings
    if in_flight(world):  # a pending rank's time is not ours: count from its end, or its return is an alarm
        world.idle_steps, world.progress_ms = 0, world.now_ms
        return
    since_ms = world.now_ms - world.progress_ms
    if world.no_progress or world.idle_steps < settings.watchdog_steps or since_ms < settings.watchdog_ms:
        return
    suspended = world.count_by_state[SequenceState.SUSPENDED]
    world.no_progress = (
        f"no progress for {since_ms} ms and {world.idle_steps} steps: {world.lanes.waiting_count} sequences wait, "
        f"{len(world.residents)} hold {world.held_slots} of {world.seats} slots, {suspended} of them are suspended, "
        "and nothing is in flight that could release one"
    )
    world.emit(NoProgress(world.no_progress))


def in_flight(world: World) -> bool:
    """Something that may release or admit on its own: it has its own limit, so the watchdog waits for it."""
    return bool(
        world.ranks.pending_count
        or world.draining
        or world.mirror.slowest_scrubbing()[1]
        or any(world.count_by_state[state] for state in _MOVING)
    )

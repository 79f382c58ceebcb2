"""Limits of time: waits, deadlines, transfers. Looked at by a heap, handled when they come (A6, A10)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from scheduler_svc.core.ending import end_waiting, forget_name, retire
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.world import World
from stateroom.residency.reasons import ErrorReason
from stateroom.residency.states import SequenceState

__all__ = ["expire", "watch_again", "watch_transfer", "watch_wait"]

STALE_KEPT = 1024  # entries of sequences that wait no more before the heap is made anew
_TRANSFERS = (SequenceState.GENERATION_INIT, SequenceState.TRANSFER_IN, SequenceState.TRANSFER_OUT)


def expire(world: World) -> None:
    """Everything whose time is over by now."""
    while world.expiries and world.expiries[0][0] <= world.now_ms:
        sequence = heappop(world.expiries)[2]
        if sequence.state is SequenceState.WAITING and not sequence.started and _lives(world, sequence):
            _expire_wait(world, sequence)
    while world.transfer_limits and world.transfer_limits[0][0] <= world.now_ms:
        _, _, sequence, counter = heappop(world.transfer_limits)
        if sequence.state in _TRANSFERS and sequence.generation[1] == counter and _lives(world, sequence):
            _expire_transfer(world, sequence)


def watch_wait(world: World, sequence: Sequence) -> None:
    """A waiter's own deadline or the group's longest wait, whichever is first."""
    longest_ms = world.settings.wait_ms_max
    at_ms = world.now_ms + min(sequence.arrival.deadline_ms or longest_ms, longest_ms)
    _note(world, sequence, at_ms)


def watch_again(world: World, sequence: Sequence) -> None:
    """It waits again without having started. If its limit passed while it was bound, it is over now."""
    if sequence.started:
        return
    if not sequence.expires_ms:  # adopted as held: this is its first wait here
        watch_wait(world, sequence)
    elif sequence.expires_ms <= world.now_ms:
        _note(world, sequence, world.now_ms)


def _note(world: World, sequence: Sequence, at_ms: int) -> None:
    sequence.expires_ms = at_ms
    heappush(world.expiries, (at_ms, sequence.number, sequence))
    if len(world.expiries) > 2 * world.lanes.waiting_count + STALE_KEPT:
        world.expiries = [entry for entry in world.expiries if entry[2].waits and _lives(world, entry[2])]
        heapify(world.expiries)


def _lives(world: World, sequence: Sequence) -> bool:
    return world.sequences.get(sequence.id) is sequence


def _expire_wait(world: World, sequence: Sequence) -> None:
    waited_ms = world.now_ms - sequence.arrived_ms
    sentence = f"{sequence.id} waited {waited_ms} ms, as long as it may: send it again or allow a longer wait"
    world.sessions[sequence.session_id].outbox.reject(sequence.id, ErrorReason.WAIT_EXPIRED, sentence)
    end_waiting(world, sequence, "expired", ErrorReason.WAIT_EXPIRED, sentence)


def watch_transfer(world: World, sequence: Sequence) -> None:
    """Its transfer is due to end: after one limit its name is free, after the other its memory."""
    if world.settings.transfer_ms_max:
        at_ms = world.now_ms + world.settings.transfer_ms_max
        heappush(world.transfer_limits, (at_ms, sequence.number, sequence, sequence.generation[1]))
        if len(world.transfer_limits) > 2 * len(world.residents) + STALE_KEPT:
            world.transfer_limits = [entry for entry in world.transfer_limits if _lives(world, entry[2])]
            heapify(world.transfer_limits)


def _expire_transfer(world: World, sequence: Sequence) -> None:
    """First the name: the caller may use the id again. Later the memory: someone may write till then."""
    session = world.sessions[sequence.session_id]
    if not sequence.nameless:
        session.outbox.cancelled.append(sequence.id)
    if sequence.demand and not sequence.nameless:
        forget_name(world, sequence, "expired", "its transfer did not end in time")
        at_ms = world.now_ms + world.settings.transfer_memory_ms_max
        heappush(world.transfer_limits, (at_ms, sequence.number, sequence, sequence.generation[1]))
        return
    retire(world, sequence, "expired", last_step=session.step)

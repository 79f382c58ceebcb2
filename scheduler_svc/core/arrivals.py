"""Arrivals: what can never run is refused at once, what may run takes its place (rules A4, A5, A6).

Every refusal is a verdict in an OK reply, one sentence with the thing, the value and the remedy; a
full queue also says when a retry makes sense, from the measured release rate.
"""

from __future__ import annotations

import re

from scheduler_svc.core.admission import admit
from scheduler_svc.core.demand import too_demanding
from scheduler_svc.core.effects import AdmissionStarted
from scheduler_svc.core.events import Arrival
from scheduler_svc.core.kv_pages import pages_too_many
from scheduler_svc.core.limits import watch_wait
from scheduler_svc.core.order import place
from scheduler_svc.core.rates import estimate_ms
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.world import World
from stateroom.residency.reasons import ErrorReason

__all__ = ["KINDS", "arrive", "new_waiter"]

KINDS = ("context", "generation_init", "context_only")
SEQUENCE_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")

Fault = tuple[ErrorReason, str, int]  # reason, sentence, retry after ms


def arrive(world: World, session: Session, arrival: Arrival) -> None:
    """One arrival of a session's message."""
    fault = _malformed(world, arrival) or _never_fits(world, session, arrival)
    if fault is None and _queue_full(world, arrival) is not None:
        admit(world)  # those before it in the same message may start, and make room
        fault = _queue_full(world, arrival)
    if fault is not None:
        session.outbox.reject(arrival.sequence_id, *fault)
        return
    sequence = new_waiter(world, session, arrival)
    position = sequence.position_at_arrival
    world.emit(AdmissionStarted(sequence.id, arrival.traceparent, sequence.demand, position))


def new_waiter(world: World, session: Session, arrival: Arrival) -> Sequence:
    """A sequence enters the queue behind all that are before it in order."""
    world.arrivals_count += 1
    sequence = Sequence(
        arrival=arrival,
        session_id=session.id,
        arrived_ms=world.now_ms,
        number=world.arrivals_count,
        order=(0, 0, 0),
        engine_word=arrival.engine_hold,
    )
    sequence.order = place(world.settings, sequence)
    world.add(sequence)
    world.enqueue(sequence)
    sequence.position_at_arrival = world.lanes.ahead_of(sequence)
    watch_wait(world, sequence)
    return sequence


def _malformed(world: World, arrival: Arrival) -> Fault | None:
    name = arrival.sequence_id
    if not SEQUENCE_ID.fullmatch(name):
        sentence = (
            f"sequence id {name[:140]!r} is not 1 to 128 of letters, digits and . _ : / -: choose another id"
        )
        return ErrorReason.INVALID_REQUEST, sentence, 0
    if name in world.sequences:
        sentence = f"sequence id {name} is in use: choose an id that no living sequence has"
        return ErrorReason.SEQUENCE_ID_IN_USE, sentence, 0
    if arrival.kind not in KINDS:
        sentence = f"kind of {name} is {arrival.kind!r}: give one of {', '.join(KINDS)}"
        return ErrorReason.INVALID_REQUEST, sentence, 0
    for field in ("prompt_tokens", "max_output_tokens"):
        if getattr(arrival, field) < 1:
            sentence = f"{field} of {name} is {getattr(arrival, field)}: give at least 1"
            return ErrorReason.INVALID_REQUEST, sentence, 0
    return None


def _never_fits(world: World, session: Session, arrival: Arrival) -> Fault | None:
    name, longest = arrival.sequence_id, world.settings.max_sequence_tokens
    tokens = arrival.prompt_tokens + arrival.max_output_tokens
    if tokens > longest:
        sentence = (
            f"{name} has {arrival.prompt_tokens} prompt and {arrival.max_output_tokens} output tokens, {tokens} "
            f"together, and the longest sequence is {longest}: shorten it or raise --max-seq-len"
        )
        return ErrorReason.TOO_MANY_TOKENS, sentence, 0
    if world.committed is not None and arrival.demand > world.seats:
        return ErrorReason.DEMAND_EXCEEDS_CAP, too_demanding(name, arrival.demand, world.seats), 0
    sentence = pages_too_many(session.kv, arrival)
    return (ErrorReason.KV_EXCEEDS_POOL, sentence, 0) if sentence else None


def _queue_full(world: World, arrival: Arrival) -> Fault | None:
    """Bounds of the queue: sequences, tokens, sequences of one tenant (rule A6)."""
    settings, waiting = world.settings, world.lanes.waiting_count
    tokens = world.waiting_tokens + arrival.prompt_tokens + arrival.max_output_tokens
    of_tenant = world.shares.waiting_count(arrival.tenant)
    if waiting >= settings.waiting_max:
        fault = f"{waiting} sequences wait and {settings.waiting_max} may"
    elif settings.waiting_tokens_max and tokens > settings.waiting_tokens_max:
        fault = f"{tokens} tokens would wait and {settings.waiting_tokens_max} may"
    elif settings.tenant_waiting_max and of_tenant >= settings.tenant_waiting_max:
        fault = (
            f"{of_tenant} sequences of tenant {arrival.tenant!r} wait and {settings.tenant_waiting_max} may"
        )
    else:
        return None
    retry_after_ms = estimate_ms(world, 1) or settings.retry_after_ms
    return (
        ErrorReason.QUEUE_FULL,
        f"{fault}: retry {arrival.sequence_id} in {retry_after_ms} ms",
        retry_after_ms,
    )

"""The work of one step: decodes first, then context chunks of residents, then room for newcomers.

Decodes are counted, not listed: every resident in DECODE runs each step. Chunks go to residents in
grant order while tokens are left, so a plan costs what it schedules (rules A1, A8). A newcomer is told
once its binds are confirmed (rule C1), so its first chunk runs in the next step at the earliest: the
room for newcomers is what the residents will leave of that one.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_svc.core.effects import Chunk
from scheduler_svc.core.limits import watch_transfer
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.settings import GroupSettings
from scheduler_svc.core.world import World
from stateroom.residency.states import SequenceEvent

__all__ = ["chunk_tokens", "context_done", "first_chunk_tokens", "measure_room", "plan_step"]

PASSED_MAX = 16  # residents whose chunk does not fit, looked past in one step


def chunk_tokens(settings: GroupSettings, sequence: Sequence, left_tokens: int) -> int:
    """Tokens of the next chunk, 0 if none fits.

    All that is left of the prompt (with its draft tokens), else up to the next forced boundary, else a
    multiple of the unit.
    """
    context_left = sequence.context_left
    room = min(left_tokens, settings.max_chunk_tokens)
    start = sequence.computed_tokens
    boundary = next((b - start for b in sequence.arrival.chunk_boundaries if b > start), context_left)
    if boundary < context_left and boundary <= room:
        return boundary
    if context_left <= room and context_left + settings.draft_tokens <= left_tokens:
        return context_left
    room = min(room, context_left - 1)  # the last token waits for its draft tokens' room
    return max(0, room - room % settings.chunk_unit_tokens)


def first_chunk_tokens(settings: GroupSettings, sequence: Sequence, left_tokens: int) -> int:
    """What a newcomer's first chunk takes of the step's tokens; 0 if it cannot start."""
    return chunk_tokens(settings, sequence, left_tokens)


def plan_step(world: World, session: Session) -> int:
    """Plans the residents' work of this step and measures the room for newcomers in the next.

    Returns how many sequences decode in this step.
    """
    decoding = session.decode_count
    if session.engine_budgets:
        return decoding
    done: list[Sequence] = []
    for sequence, tokens in _chunks(world.settings, session):
        world.visited_count += 1
        if not tokens:
            continue
        if not sequence.computed_tokens:
            session.kv.started(sequence, session.step)
        last = tokens == sequence.context_left
        session.outbox.chunks.append(Chunk(sequence.id, sequence.computed_tokens, tokens, last))
        sequence.computed_tokens += tokens
        if last:
            done.append(sequence)
    for sequence in done:
        context_done(world, session, sequence)
    measure_room(world.settings, session)
    return decoding


def _chunks(settings: GroupSettings, session: Session) -> Iterator[tuple[Sequence, int]]:
    """Residents with context left and the tokens each gets, in grant order, until no token is left.

    One whose next chunk does not fit gets 0 and is passed over: what is left may be another's last
    chunk (rule A1). So many are looked past and no more, for a step costs what it schedules.
    """
    left_tokens = settings.max_step_tokens - session.decode_count * (1 + settings.draft_tokens)
    passed = 0
    for sequence in session.chunking.values():
        tokens = chunk_tokens(settings, sequence, left_tokens)
        left_tokens -= tokens + settings.draft_tokens * (tokens == sequence.context_left)
        yield sequence, tokens
        passed += not tokens
        if left_tokens < 1 or passed == PASSED_MAX:
            return


def measure_room(settings: GroupSettings, session: Session) -> None:
    """Tokens and sequences that the residents will leave of the next step: none while one of them is
    held back, or newcomers would keep the room small and it would never run (rule A1)."""
    left_tokens = settings.max_step_tokens - session.decode_count * (1 + settings.draft_tokens)
    left_sequences = settings.asked - session.decode_count
    for sequence, tokens in _chunks(settings, session):
        if not tokens:
            left_tokens = 0
            break
        left_tokens -= tokens + settings.draft_tokens * (tokens == sequence.context_left)
        left_sequences -= 1
    session.left_tokens, session.left_sequences = max(0, left_tokens), max(0, left_sequences)


def context_done(world: World, session: Session, sequence: Sequence) -> None:
    """Its last chunk is planned: from the next step on it decodes, or its state is sent away."""
    del session.chunking[sequence.id]
    if sequence.arrival.kind == "context_only":
        world.move(sequence, SequenceEvent.CONTEXT_DONE_SENDS)
        watch_transfer(world, sequence)
        return
    world.move(sequence, SequenceEvent.CONTEXT_DONE)
    session.decode_count += 1

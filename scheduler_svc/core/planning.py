"""The work of one step: decodes first, then context chunks of residents, then room for newcomers.

Decodes are counted, not listed: every resident in DECODE runs each step. Chunks go to residents in
grant order while tokens are left, so a plan costs what it schedules (rules A1, A8). A newcomer is told
once its binds are confirmed (rule C1), so its first chunk runs in the next step at the earliest: the
room for newcomers is what the residents will leave of that one.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_svc.core.effects import Chunk
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.settings import GroupSettings
from scheduler_svc.core.world import World
from stateroom.residency.states import SequenceEvent

__all__ = ["chunk_tokens", "first_chunk_tokens", "measure_room", "plan_step"]


def chunk_tokens(settings: GroupSettings, context_left: int, left_tokens: int) -> int:
    """Tokens of the next chunk: all that is left of the prompt if it fits, else a multiple of the unit."""
    room = min(left_tokens, settings.max_chunk_tokens)
    if context_left <= room:
        return context_left
    return max(0, room - room % settings.chunk_unit_tokens)


def first_chunk_tokens(settings: GroupSettings, sequence: Sequence, left_tokens: int) -> int:
    """What a newcomer's first chunk takes of the step's tokens; 0 if it cannot start."""
    return chunk_tokens(settings, sequence.context_left, left_tokens)


def plan_step(world: World, session: Session) -> int:
    """Plans the residents' work of this step and measures the room for newcomers in the next.

    Returns how many sequences decode in this step.
    """
    decoding = session.decode_count
    done: list[Sequence] = []
    for sequence, tokens in _chunks(world.settings, session):
        last = tokens == sequence.context_left
        session.outbox.chunks.append(Chunk(sequence.id, sequence.computed_tokens, tokens, last))
        sequence.computed_tokens += tokens
        if last:
            done.append(sequence)
    for sequence in done:
        _context_done(world, session, sequence)
    measure_room(world.settings, session)
    return decoding


def _chunks(settings: GroupSettings, session: Session) -> Iterator[tuple[Sequence, int]]:
    """Residents with context left and the tokens each gets, in grant order, until no token is left."""
    left_tokens = settings.max_step_tokens - session.decode_count
    for sequence in session.chunking.values():
        tokens = chunk_tokens(settings, sequence.context_left, left_tokens)
        if not tokens:
            return
        left_tokens -= tokens
        yield sequence, tokens


def measure_room(settings: GroupSettings, session: Session) -> None:
    """Tokens and sequences that the residents will leave of the next step."""
    left_tokens = settings.max_step_tokens - session.decode_count
    left_sequences = settings.asked - session.decode_count
    for _, tokens in _chunks(settings, session):
        left_tokens -= tokens
        left_sequences -= 1
    session.left_tokens, session.left_sequences = max(0, left_tokens), max(0, left_sequences)


def _context_done(world: World, session: Session, sequence: Sequence) -> None:
    """Its last chunk is planned: from the next step on it decodes, or its state is sent away."""
    del session.chunking[sequence.id]
    if sequence.arrival.kind == "context_only":
        world.move(sequence, SequenceEvent.CONTEXT_DONE_SENDS)
        return
    world.move(sequence, SequenceEvent.CONTEXT_DONE)
    session.decode_count += 1

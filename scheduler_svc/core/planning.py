"""The work of one step: decodes first, then context chunks of residents, then room for newcomers.

Decodes are counted, not listed: every resident in DECODE runs each step. Chunks go to residents in
grant order while tokens are left, so a plan costs what it schedules (rules A1, A8).
"""

from __future__ import annotations

from scheduler_svc.core.effects import Chunk
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.settings import GroupSettings
from scheduler_svc.core.world import World
from stateroom.residency.states import SequenceEvent

__all__ = ["chunk_tokens", "first_chunk_tokens", "plan_step"]


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
    """Plans the residents' work and leaves the rest of the budget to newcomers.

    Returns how many sequences decode in this step.
    """
    settings = world.settings
    decoding = session.decode_count
    left_tokens = max(0, settings.max_step_tokens - decoding)
    left_sequences = max(0, settings.asked - decoding)
    done: list[Sequence] = []
    for sequence in session.chunking.values():
        tokens = chunk_tokens(settings, sequence.context_left, left_tokens)
        if not tokens or not left_sequences:
            break
        left_tokens -= tokens
        left_sequences -= 1
        last = tokens == sequence.context_left
        session.outbox.chunks.append(Chunk(sequence.id, sequence.computed_tokens, tokens, last))
        sequence.computed_tokens += tokens
        if last:
            done.append(sequence)
    for sequence in done:
        _context_done(world, session, sequence)
    session.left_tokens, session.left_sequences = left_tokens, left_sequences
    return decoding


def _context_done(world: World, session: Session, sequence: Sequence) -> None:
    """Its last chunk is planned: from the next step on it decodes, or its state is sent away."""
    del session.chunking[sequence.id]
    if sequence.arrival.kind == "context_only":
        world.move(sequence, SequenceEvent.CONTEXT_DONE_SENDS)
        return
    world.move(sequence, SequenceEvent.CONTEXT_DONE)
    session.decode_count += 1

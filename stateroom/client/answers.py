"""Takes answers and pushes of the scheduler into a session's book.

Answers of an older term than the highest heard are dropped (rule D4); a grant that crossed a cancel is
given back, once (rule A11); a loss of an ownership that is not held any more is nothing (rule D2).
"""

from __future__ import annotations

from functools import partial

from stateroom.client.book import SessionBook
from stateroom.client.decisions import Chunk, Grant, Handle, Preemption, RankInfo, Recompute, Rejection
from stateroom.client.held import HeldSequence
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types

__all__ = ["hear"]


def hear(book: SessionBook, response: pb.StepResponse) -> None:
    """Takes an answer or a push in; `book.take` hands out what was heard."""
    if response.term < book.term:
        return  # of a scheduler that does not lead any more (rule D4)
    book.term = response.term
    heard = book.heard
    heard.grants += tuple(g for g in map(partial(_granted, book), response.grants) if g is not None)
    heard.chunks += tuple(_chunk(book, c) for c in response.chunks)
    heard.rejections += tuple(_rejected(book, r) for r in response.rejections)
    heard.recompute += tuple(r for r in map(partial(_lost, book), response.recompute) if r is not None)
    heard.preemptions += tuple(
        p for p in map(partial(_preempted, book), response.preemptions) if p is not None
    )
    heard.reclaim += tuple(
        r.sequence_id for r in response.reclaim if _is_mine(book, r.sequence_id, r.generation)
    )
    heard.cancelled += tuple(name for name in response.cancelled if _cancelled(book, name))
    heard.attach += tuple(RankInfo.of(a) for a in response.attach)
    for queued in response.queued:
        book.lane_of[queued.sequence_id] = queued.lane
    for lane in response.lanes:
        reason = types.WaitReason.Name(lane.reason).removeprefix("WAIT_REASON_")
        book.verdict_of_lane[lane.lane] = (reason, lane.detail)
    book.binding_count = heard.binding_count = response.binding_count
    heard.residents_count = response.residents_count
    heard.waiting_count = response.waiting_count
    heard.decode_count = response.decode_count


def _granted(book: SessionBook, grant: pb.Grant) -> Grant | None:
    arrival = book.waiting.pop(grant.sequence_id, None)
    book.lane_of.pop(grant.sequence_id, None)
    handles = tuple(grant.handles)
    if arrival is None:  # crossed a cancel: given back once (rule A11)
        generation = handles[0].generation if handles else types.Generation()
        book.facts.finishes.add(sequence_id=grant.sequence_id, generation=generation, last_step=0)
        return None
    init = arrival.kind == types.SEQUENCE_KIND_GENERATION_INIT
    state = types.SEQUENCE_STATE_GENERATION_INIT if init else types.SEQUENCE_STATE_CONTEXT
    if grant.computed_tokens >= arrival.prompt_tokens:
        state = types.SEQUENCE_STATE_DECODE
    book.held[grant.sequence_id] = HeldSequence(arrival, handles, state, grant.computed_tokens)
    return Grant(
        grant.sequence_id,
        tuple(map(Handle.of, handles)),
        grant.wait_ms,
        grant.needs_clear,
        grant.computed_tokens,
    )


def _chunk(book: SessionBook, chunk: pb.Chunk) -> Chunk:
    held = book.held.get(chunk.sequence_id)
    if held is not None:
        held.computed_tokens = chunk.start + chunk.tokens
        if chunk.last:
            sends = held.arrival.kind == types.SEQUENCE_KIND_CONTEXT_ONLY
            held.state = types.SEQUENCE_STATE_TRANSFER_OUT if sends else types.SEQUENCE_STATE_DECODE
    return Chunk(chunk.sequence_id, chunk.start, chunk.tokens, chunk.last)


def _rejected(book: SessionBook, rejection: pb.Rejection) -> Rejection:
    if rejection.reason != "SEQUENCE_ID_IN_USE":
        book.waiting.pop(rejection.sequence_id, None)
    book.lane_of.pop(rejection.sequence_id, None)
    return Rejection(rejection.sequence_id, rejection.reason, rejection.message, rejection.retry_after_ms)


def _lost(book: SessionBook, lost: pb.Recompute) -> Recompute | None:
    held = book.held.get(lost.sequence_id)
    if held is None or held.generation != lost.generation:
        return None  # not ours any more (rule D2)
    held.state = types.SEQUENCE_STATE_LOST
    held.computed_tokens = 0
    return Recompute(lost.sequence_id, (lost.generation.term, lost.generation.counter), lost.message)


def _preempted(book: SessionBook, told: pb.Preemption) -> Preemption | None:
    if not _is_mine(book, told.sequence_id, told.generation):
        return None
    book.held[told.sequence_id].state = types.SEQUENCE_STATE_LOST
    generation = (told.generation.term, told.generation.counter)
    return Preemption(told.sequence_id, generation, told.keep_state, told.message)


def _is_mine(book: SessionBook, sequence_id: str, generation: types.Generation) -> bool:
    held = book.held.get(sequence_id)
    return held is not None and held.generation == generation


def _cancelled(book: SessionBook, sequence_id: str) -> bool:
    book.lane_of.pop(sequence_id, None)
    return book.waiting.pop(sequence_id, None) is not None or sequence_id in book.held

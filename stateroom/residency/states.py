"""Life of a sequence and of a slot: one table each, with the holds-a-slot classification (rule A3).

A missing key is an illegal move and leaves the state unchanged. Residents are counted from owners,
never by scanning states; the classification says which states must have an owner, and a test
demands that every state is classified.

    WAITING -> BINDING            a slot is chosen, every rank is told (rule C1)
    BINDING -> CONTEXT | GENERATION_INIT   every rank has confirmed, the executor is told
    CONTEXT -> DECODE | TRANSFER_OUT       after the last chunk
    GENERATION_INIT -> TRANSFER_IN -> DECODE
    any holder -> RETIRING -> gone         finished or cancelled; gone when its last step is done (C2)
    any holder -> CACHED -> RETIRING       finished, its state is kept until somebody needs the slot (A11)
    any holder -> LOST -> WAITING          state lost or preempted; waits again once the executor let go (D2)
    LOST -> SUSPENDED_HOST -> BINDING      preempted, its state was moved to the host: resumes in a new slot
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["HOLDS_SLOT", "TRANSITIONS", "SequenceEvent", "SequenceState", "SlotState", "next_state"]


class SequenceState(StrEnum):
    """What a sequence is doing; names as in the proto enum."""

    WAITING = "WAITING"
    BINDING = "BINDING"
    CONTEXT = "CONTEXT"
    DECODE = "DECODE"
    GENERATION_INIT = "GENERATION_INIT"
    TRANSFER_IN = "TRANSFER_IN"
    TRANSFER_OUT = "TRANSFER_OUT"
    SUSPENDED = "SUSPENDED"
    SUSPENDED_HOST = "SUSPENDED_HOST"
    RETIRING = "RETIRING"
    LOST = "LOST"
    CACHED = "CACHED"


class SlotState(StrEnum):
    """What a slot is on one rank; names as in the proto enum."""

    FREE = "FREE"
    BOUND = "BOUND"
    QUARANTINED = "QUARANTINED"
    SCRUBBING = "SCRUBBING"
    RESERVED = "RESERVED"
    WITHHELD = "WITHHELD"


class SequenceEvent(StrEnum):
    """What moves a sequence."""

    CHOSEN = "a slot was chosen and bound"
    TAKEN_BACK = "a rank refused the bind or was lost before the grant was told"
    TAKEN_BACK_KEPT = "the same, its state is in host memory"
    GRANTED_CONTEXT = "granted, starts with a context chunk"
    GRANTED_INIT = "granted, waits for its transfer"
    CONTEXT_DONE = "last context chunk computed"
    CONTEXT_DONE_SENDS = "last context chunk computed, the state is sent away"
    TRANSFER_STARTED = "transfer in began"
    TRANSFER_DONE = "state is here"
    SUSPEND = "suspended, state stays on the device"
    RESUME_CONTEXT = "resumed between context chunks"
    RESUME_DECODE = "resumed while decoding"
    DECLINED = "the engine declined the grant"
    DECLINED_KEPT = "the same, its state is still in host memory"
    ENDED = "finished, cancelled or failed; its last step may be in flight"
    RANK_LOST = "a rank lost its state"
    PREEMPTED = "stopped for another one, or by the engine itself"
    RELEASED = "no step uses the slot any more, it is computed again"
    RELEASED_KEPT = "no step uses the slot any more, the state is in host memory"
    GRANTED_DECODE = "granted, goes on decoding from its state"
    VOIDED = "its state in host memory is not valid any more"
    CACHE = "finished, the state is kept as a cache"


# True: the state has an owner in the ledger and counts as resident.
HOLDS_SLOT: Mapping[SequenceState, bool] = MappingProxyType(
    {
        SequenceState.WAITING: False,
        SequenceState.BINDING: True,
        SequenceState.CONTEXT: True,
        SequenceState.DECODE: True,
        SequenceState.GENERATION_INIT: True,
        SequenceState.TRANSFER_IN: True,
        SequenceState.TRANSFER_OUT: True,
        SequenceState.SUSPENDED: True,
        SequenceState.SUSPENDED_HOST: False,
        SequenceState.RETIRING: True,
        SequenceState.LOST: True,
        SequenceState.CACHED: True,
    }
)

_S, _E = SequenceState, SequenceEvent
_RUNNING = (_S.CONTEXT, _S.DECODE, _S.GENERATION_INIT, _S.TRANSFER_IN, _S.TRANSFER_OUT, _S.SUSPENDED)

TRANSITIONS: Mapping[tuple[SequenceState, SequenceEvent], SequenceState] = MappingProxyType(
    {
        (_S.WAITING, _E.CHOSEN): _S.BINDING,
        (_S.BINDING, _E.TAKEN_BACK): _S.WAITING,
        (_S.BINDING, _E.TAKEN_BACK_KEPT): _S.SUSPENDED_HOST,
        (_S.BINDING, _E.GRANTED_CONTEXT): _S.CONTEXT,
        (_S.BINDING, _E.GRANTED_INIT): _S.GENERATION_INIT,
        (_S.CONTEXT, _E.CONTEXT_DONE): _S.DECODE,
        (_S.CONTEXT, _E.CONTEXT_DONE_SENDS): _S.TRANSFER_OUT,
        (_S.GENERATION_INIT, _E.TRANSFER_STARTED): _S.TRANSFER_IN,
        (_S.GENERATION_INIT, _E.TRANSFER_DONE): _S.DECODE,
        (_S.TRANSFER_IN, _E.TRANSFER_DONE): _S.DECODE,
        (_S.CONTEXT, _E.SUSPEND): _S.SUSPENDED,
        (_S.DECODE, _E.SUSPEND): _S.SUSPENDED,
        (_S.SUSPENDED, _E.RESUME_CONTEXT): _S.CONTEXT,
        (_S.SUSPENDED, _E.RESUME_DECODE): _S.DECODE,
        **{(state, _E.ENDED): _S.RETIRING for state in (*_RUNNING, _S.BINDING, _S.LOST, _S.CACHED)},
        **{(state, _E.RANK_LOST): _S.LOST for state in _RUNNING},
        **{(state, _E.PREEMPTED): _S.LOST for state in (_S.CONTEXT, _S.DECODE, _S.SUSPENDED)},
        **{(state, _E.CACHE): _S.CACHED for state in (_S.CONTEXT, _S.DECODE, _S.SUSPENDED, _S.TRANSFER_OUT)},
        # chunks may have been planned before the engine's word came (rule A11)
        **{
            (state, _E.DECLINED): _S.WAITING
            for state in (_S.CONTEXT, _S.DECODE, _S.GENERATION_INIT, _S.TRANSFER_OUT)
        },
        (_S.DECODE, _E.DECLINED_KEPT): _S.SUSPENDED_HOST,
        (_S.LOST, _E.RELEASED): _S.WAITING,
        (_S.LOST, _E.RELEASED_KEPT): _S.SUSPENDED_HOST,
        (_S.SUSPENDED_HOST, _E.CHOSEN): _S.BINDING,
        (_S.SUSPENDED_HOST, _E.VOIDED): _S.WAITING,
        (_S.BINDING, _E.GRANTED_DECODE): _S.DECODE,
    }
)


def next_state(state: SequenceState, event: SequenceEvent) -> SequenceState | None:
    """The state after the event, or None if the move is illegal (then nothing may change)."""
    return TRANSITIONS.get((state, event))

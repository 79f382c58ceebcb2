"""Words that every message spells one way and the pure code another: translated here, both ways."""

from __future__ import annotations

from stateroom.residency.answer import Answer, Bounded, Pending, Unbounded
from stateroom.residency.generation import Generation
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState, SlotState
from stateroom.v1 import types_pb2 as types

__all__ = [
    "answer_from",
    "answer_to",
    "generation_from",
    "generation_to",
    "reason_to",
    "slot_state_from",
    "slot_state_to",
    "state_from",
    "state_to",
]

_REASON = {reason: types.WaitReason.Value(f"WAIT_REASON_{reason}") for reason in WaitReason}
_STATE = {state: types.SequenceState.Value(f"SEQUENCE_STATE_{state}") for state in SequenceState}
_STATE_FROM = {number: state for state, number in _STATE.items()}
_SLOT_STATE = {state: types.SlotState.Value(f"SLOT_STATE_{state}") for state in SlotState}
_SLOT_STATE_FROM = {number: state for state, number in _SLOT_STATE.items()}


def reason_to(reason: WaitReason | None) -> types.WaitReason.ValueType:
    """The proto's number; None is UNSPECIFIED."""
    return types.WAIT_REASON_UNSPECIFIED if reason is None else _REASON[reason]


def state_to(state: SequenceState | None) -> types.SequenceState.ValueType:
    """The proto's number; None is UNSPECIFIED."""
    return types.SEQUENCE_STATE_UNSPECIFIED if state is None else _STATE[state]


def state_from(number: types.SequenceState.ValueType) -> SequenceState | None:
    """The state, None for a number that this version does not know."""
    return _STATE_FROM.get(number)


def slot_state_to(state: SlotState) -> types.SlotState.ValueType:
    """The proto's number."""
    return _SLOT_STATE[state]


def slot_state_from(number: types.SlotState.ValueType) -> SlotState:
    """The state of a ledger entry; an unknown one counts as quarantined, which nobody binds."""
    return _SLOT_STATE_FROM.get(number, SlotState.QUARANTINED)


def generation_from(message: types.Generation) -> Generation:
    """(term, counter)."""
    return (message.term, message.counter)


def generation_to(generation: Generation) -> types.Generation:
    """(term, counter) as a message."""
    return types.Generation(term=generation[0], counter=generation[1])


def answer_from(message: types.Residency) -> Answer:
    """An unset answer is of an older peer: pending, never unlimited (rule B1, scenario G13)."""
    match message.WhichOneof("answer"):
        case "unbounded":
            return Unbounded()
        case "bounded":
            return Bounded(message.bounded.slots_count)
        case "pending":
            return Pending(message.pending.reason)
        case _:
            return Pending("it sent no answer that this version knows")


def answer_to(answer: Answer) -> types.Residency:
    """One of three."""
    match answer:
        case Pending(reason):
            return types.Residency(pending=types.Pending(reason=reason))
        case Unbounded():
            return types.Residency(unbounded=types.Unbounded())
        case Bounded(slots_count):
            return types.Residency(bounded=types.Bounded(slots_count=slots_count))

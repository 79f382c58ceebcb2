"""One catalogue of errors, one closed set of reasons: proto, core and SDK say the same words."""

from __future__ import annotations

import grpc
import pytest

from stateroom.errors import CODE_BY_REASON
from stateroom.residency.reasons import ErrorReason, WaitReason
from stateroom.residency.states import HOLDS_SLOT, TRANSITIONS, SequenceEvent, SequenceState, SlotState
from stateroom.v1 import error_details_pb2, types_pb2


@pytest.mark.parametrize(
    ("words", "enum", "prefix"),
    [
        (ErrorReason, error_details_pb2.ErrorReason, "ERROR_REASON_"),
        (WaitReason, types_pb2.WaitReason, "WAIT_REASON_"),
        (SequenceState, types_pb2.SequenceState, "SEQUENCE_STATE_"),
        (SlotState, types_pb2.SlotState, "SLOT_STATE_"),
    ],
)
def test_python_and_proto_have_the_same_words(words: type, enum: object, prefix: str) -> None:
    names: list[str] = enum.keys()  # type: ignore[attr-defined]
    in_proto = {name.removeprefix(prefix) for name in names} - {"UNSPECIFIED"}
    assert {word.value for word in words} == in_proto  # type: ignore[attr-defined]


def test_every_reason_has_one_code() -> None:
    assert set(CODE_BY_REASON) == set(ErrorReason)


def test_a07_resource_exhausted_is_left_to_grpc() -> None:
    """gRPC itself sends it for two other causes (facts M9, M12)."""
    assert grpc.StatusCode.RESOURCE_EXHAUSTED not in CODE_BY_REASON.values()


def test_a03_every_state_is_classified() -> None:
    assert set(HOLDS_SLOT) == set(SequenceState)


def test_a03_every_state_and_event_takes_part_in_the_table() -> None:
    assert {state for state, _ in TRANSITIONS} | set(TRANSITIONS.values()) >= set(SequenceState) - {
        SequenceState.SUSPENDED_HOST
    }
    assert {event for _, event in TRANSITIONS} == set(SequenceEvent)

"""What a session holds, one record a sequence, and how a whole list names it (rule D5)."""

from __future__ import annotations

from dataclasses import dataclass

from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types

__all__ = ["HeldSequence"]


@dataclass(slots=True)
class HeldSequence:
    """A sequence that holds slots; `state` is a SequenceState number of the wire."""

    arrival: pb.Arrival
    handles: tuple[types.Handle, ...]
    state: types.SequenceState.ValueType
    computed_tokens: int = 0
    last_step: int = 0
    cancelled: bool = False  # in mid-transfer

    @property
    def generation(self) -> types.Generation:
        """The ownership."""
        return self.handles[0].generation if self.handles else types.Generation()

    @property
    def listed_state(self) -> types.SequenceState.ValueType:
        """In a whole list LOST means let go. One that is held still may be in use (rule C2), so it is listed
        as running, and told again that it is lost."""
        if self.state != types.SEQUENCE_STATE_LOST:
            return self.state
        if self.computed_tokens >= self.arrival.prompt_tokens:
            return types.SEQUENCE_STATE_DECODE
        init = self.arrival.kind == types.SEQUENCE_KIND_GENERATION_INIT
        return types.SEQUENCE_STATE_GENERATION_INIT if init else types.SEQUENCE_STATE_CONTEXT

"""What an executor is told, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types

__all__ = [
    "Chunk",
    "Decisions",
    "Grant",
    "Handle",
    "Preemption",
    "RankInfo",
    "Recompute",
    "Rejection",
    "SessionInfo",
]

Generation = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Handle:
    """A slot of the pool, the ownership, and the boot id of each rank (rule C3)."""

    slot: int
    generation: Generation
    boot_ids: tuple[str, ...]

    @classmethod
    def of(cls, message: types.Handle) -> Handle:
        """From the wire."""
        generation = (message.generation.term, message.generation.counter)
        return cls(message.slot, generation, tuple(message.boot_ids))


@dataclass(frozen=True, slots=True)
class Grant:
    """Start this sequence; every rank has its slots bound."""

    sequence_id: str
    handles: tuple[Handle, ...]
    wait_ms: int
    needs_clear: bool
    computed_tokens: int = 0  # > 0: restore its state from host memory and go on from here


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute these context tokens in this step."""

    sequence_id: str
    start: int
    tokens: int
    last: bool


@dataclass(frozen=True, slots=True)
class Rejection:
    """Never admitted: the reason by name, and one sentence."""

    sequence_id: str
    reason: str
    message: str
    retry_after_ms: int


@dataclass(frozen=True, slots=True)
class Recompute:
    """The state of this ownership is lost: stop it, then call `let_go`; it waits again in its place."""

    sequence_id: str
    generation: Generation
    message: str


@dataclass(frozen=True, slots=True)
class Preemption:
    """Stop this resident for another one, then call `let_go`; with `keep_state` its state may be moved to
    host memory first (`let_go(..., state_kept=True)`)."""

    sequence_id: str
    generation: Generation
    keep_state: bool
    message: str


@dataclass(frozen=True, slots=True)
class RankInfo:
    """How to reach a rank's cache service."""

    rank: int
    address: str
    boot_id: str
    has_pool: bool

    @classmethod
    def of(cls, message: pb.RankAddress) -> RankInfo:
        """From the wire."""
        return cls(message.rank, message.address, message.boot_id, message.has_pool)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What registration answered. `seats` sequences may be resident; rows below `reserved_slots` are
    never bound; `warmup_batches` are already truncated to the seats (rules B4, B5)."""

    session_id: str
    term: int
    seats: int
    unbounded: bool
    reserved_slots: int
    ranks: tuple[RankInfo, ...]
    warmup_batches: tuple[int, ...]
    max_sequence_tokens: int
    max_step_tokens: int

    @classmethod
    def of(cls, message: pb.RegisterSessionResponse) -> SessionInfo:
        """From the wire."""
        return cls(
            session_id=message.session_id,
            term=message.term,
            seats=message.seats,
            unbounded=message.agreed.WhichOneof("answer") == "unbounded",
            reserved_slots=message.reserved_slots,
            ranks=tuple(RankInfo.of(r) for r in message.ranks),
            warmup_batches=tuple(message.warmup_batches),
            max_sequence_tokens=message.max_sequence_tokens,
            max_step_tokens=message.max_step_tokens,
        )


@dataclass(slots=True)
class Decisions:
    """One step's decisions, with what was pushed since the last one.

    Every sequence in `chunks` computes its chunk; every resident that decodes runs one step, also when
    `away` says that the scheduler did not answer: then nothing starts and nothing else changes (D7).
    """

    step: int
    grants: tuple[Grant, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    recompute: tuple[Recompute, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    reclaim: tuple[str, ...] = ()  # cached states to forget: stop using them, then call `finish`
    cancelled: tuple[str, ...] = ()
    attach: tuple[RankInfo, ...] = ()
    binding_count: int = 0
    residents_count: int = 0
    waiting_count: int = 0
    decode_count: int = 0
    away: bool = False
    late: bool = False  # the answer missed the step's deadline: it comes with the next step's (rule A11)

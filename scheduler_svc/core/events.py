"""What enters the admission core. Plain data; the driver makes it from messages and timers.

An executor's message is one event (`StepMessage`) with its facts in order, so that everything it
says is applied before anything is decided. Ranks are named by their number in the group.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_svc.core.rank_reports import (
    Committed,
    LedgerEntry,
    RankConfirmed,
    RankLedger,
    RankLost,
    RankReported,
    RefusedOrder,
)
from stateroom.residency.generation import Generation
from stateroom.residency.states import SequenceState

__all__ = [
    "AllStatesVoid",
    "Arrival",
    "Attached",
    "CancelAsked",
    "Cancelled",
    "Committed",
    "DemandChanged",
    "DrainAsked",
    "EnginePreempted",
    "Event",
    "Fact",
    "Finished",
    "Generation",
    "GrantAnswered",
    "Held",
    "KvReported",
    "LedgerEntry",
    "LetGo",
    "Owned",
    "Progressed",
    "RankConfirmed",
    "RankLedger",
    "RankLost",
    "RankReported",
    "Ready",
    "RefusedOrder",
    "SessionList",
    "SessionRegistered",
    "StepMessage",
    "StreamClosed",
    "Suspension",
    "Tick",
    "TransferReported",
]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A new sequence. `kind` is one of context, generation_init, context_only (rule A2)."""

    sequence_id: str
    kind: str
    prompt_tokens: int
    max_output_tokens: int
    demand: int = 1
    priority: int = 0
    traceparent: str = ""
    tenant: str = ""
    deadline_ms: int = 0  # longest wait, 0: the group's
    chunk_boundaries: tuple[int, ...] = ()  # positions at which a chunk has to end, ascending
    engine_hold: str = ""  # the engine's word why it is not ready for it; reason ENGINE until Ready


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is ready now for a sequence that it held back or declined (reason ENGINE ends)."""

    sequence_id: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The executor ended a sequence; `last_step` is the last one issued that touches the slot (C2)."""

    sequence_id: str
    generation: Generation
    last_step: int
    output_tokens: int = 0
    keep_as_cache: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The executor cancels a sequence of its own; the fence is the session's last issued step."""

    sequence_id: str


@dataclass(frozen=True, slots=True)
class TransferReported:
    """A state transfer began, completed or failed: `event` is started, completed or failed."""

    sequence_id: str
    generation: Generation
    event: str


@dataclass(frozen=True, slots=True)
class GrantAnswered:
    """What became of a grant (rule A11): `declined` is empty for started, else the engine's word."""

    sequence_id: str
    generation: Generation
    declined: str


@dataclass(frozen=True, slots=True)
class Suspension:
    """The executor suspended or resumed a sequence that keeps its slot."""

    sequence_id: str
    generation: Generation
    suspended: bool


@dataclass(frozen=True, slots=True)
class LetGo:
    """Answer to a recompute: no step after `last_step` touches the lost ownership (rule D2)."""

    sequence_id: str
    generation: Generation
    last_step: int
    state_kept: bool = False


@dataclass(frozen=True, slots=True)
class Attached:
    """The session's worker of this rank mapped the pool with this boot id."""

    rank: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """A context is computed up to here (sessions whose engine plans its chunks)."""

    sequence_id: str
    generation: Generation
    computed_tokens: int


@dataclass(frozen=True, slots=True)
class EnginePreempted:
    """The engine stopped a resident by itself; its state is gone or kept in host memory."""

    sequence_id: str
    generation: Generation
    last_step: int
    state_kept: bool


@dataclass(frozen=True, slots=True)
class AllStatesVoid:
    """No state of the session is valid any more (weight update, sleep)."""

    last_step: int


@dataclass(frozen=True, slots=True)
class DemandChanged:
    """A waiting sequence needs another number of slots."""

    sequence_id: str
    demand: int


@dataclass(frozen=True, slots=True)
class KvReported:
    """The engine's KV pages as of this message."""

    page_tokens: int
    total_pages: int
    free_pages: int


Owned = Finished | TransferReported | GrantAnswered | Suspension | LetGo | Progressed | EnginePreempted
Fact = Owned | Arrival | Ready | Cancelled | Attached | AllStatesVoid | DemandChanged | KvReported


@dataclass(frozen=True, slots=True)
class Held:
    """A sequence that a session says it holds, in its whole list (rule D5)."""

    arrival: Arrival
    slots: tuple[int, ...]
    generation: Generation
    state: SequenceState
    computed_tokens: int
    last_step: int


@dataclass(frozen=True, slots=True)
class SessionList:
    """Everything a session has; replaces what is known of it."""

    held: tuple[Held, ...]
    waiting: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class SessionRegistered:
    """An executor registered; a known id resumes."""

    session_id: str
    executor: str
    attaches_pools: bool
    engine_budgets: bool = False


@dataclass(frozen=True, slots=True)
class StepMessage:
    """One message of a Step stream. `step` 0 asks nothing; `session_list` only in a stream's first."""

    session_id: str
    delta_number: int
    step: int
    completed_step: int
    facts: tuple[Fact, ...] = ()
    session_list: SessionList | None = None
    full: bool = False


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The session's Step stream ended; what it holds stays held (rules C4, D5)."""

    session_id: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Cancel by id from outside the session."""

    sequence_id: str


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """Nothing new starts from now on (rule D8)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; limits of waiting are looked at."""


Event = (
    RankReported
    | Committed
    | RankLedger
    | RankConfirmed
    | RankLost
    | SessionRegistered
    | StepMessage
    | StreamClosed
    | CancelAsked
    | DrainAsked
    | Tick
)

"""What the admission core wants done. The driver carries it out, in order; nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_svc.core.events import Generation
from stateroom.residency.agreement import Agreement
from stateroom.residency.reasons import ErrorReason, WaitReason

__all__ = [
    "AdmissionEnded",
    "AdmissionStarted",
    "BindOrder",
    "Chunk",
    "CommitAgreement",
    "Decisions",
    "Deposed",
    "Effect",
    "Grant",
    "GroupChanged",
    "HearLedger",
    "NoProgress",
    "Orders",
    "Preemption",
    "Reclaim",
    "Recompute",
    "Rejection",
    "ReleaseOrder",
    "Tell",
    "TermRaised",
    "Waiter",
]


@dataclass(frozen=True, slots=True)
class BindOrder:
    """Bind one slot on one rank."""

    slot: int
    generation: Generation
    sequence_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class ReleaseOrder:
    """Release one slot on one rank."""

    slot: int
    generation: Generation


@dataclass(frozen=True, slots=True)
class Orders:
    """One message of a rank's ordered stream; releases are applied before binds."""

    rank: int
    boot_id: str
    sequence_number: int
    releases: tuple[ReleaseOrder, ...]
    binds: tuple[BindOrder, ...]


@dataclass(frozen=True, slots=True)
class CommitAgreement:
    """Tell a rank what the group agreed on (rules B3, B4)."""

    rank: int
    boot_id: str
    agreement: Agreement
    reserved_slots: int


@dataclass(frozen=True, slots=True)
class HearLedger:
    """Open (again) the ordered stream of a rank and read its ledger (rule D1)."""

    rank: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """An admission that every rank has confirmed."""

    sequence_id: str
    slots: tuple[int, ...]
    generation: Generation
    wait_ms: int
    computed_tokens: int = 0  # > 0: goes on from its state in host memory


@dataclass(frozen=True, slots=True)
class Chunk:
    """Context tokens of a resident in this step."""

    sequence_id: str
    start: int
    tokens: int
    last: bool


@dataclass(frozen=True, slots=True)
class Rejection:
    """Never admitted; `message` is one sentence."""

    sequence_id: str
    reason: ErrorReason
    message: str
    retry_after_ms: int = 0


@dataclass(frozen=True, slots=True)
class Recompute:
    """The state of this ownership is lost (rule D2)."""

    sequence_id: str
    generation: Generation
    message: str


@dataclass(frozen=True, slots=True)
class Preemption:
    """Stop this resident; with `keep_state` its state may go to host memory (rule A4)."""

    sequence_id: str
    generation: Generation
    keep_state: bool
    message: str


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Forget this cached state: its slot is needed (rule A11)."""

    sequence_id: str
    generation: Generation


@dataclass(frozen=True, slots=True)
class NoProgress:
    """The watchdog's finding (rule A9)."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Waiter:
    """One row of a full list."""

    sequence_id: str
    reason: WaitReason
    waited_ms: int


@dataclass(slots=True)
class Decisions:
    """What a session is told next. Filled while events are handled, handed out by `Tell`."""

    grants: list[Grant] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    recompute: list[Recompute] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    reclaim: list[Reclaim] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    attach: list[int] = field(default_factory=list)
    queued: list[tuple[str, int, int]] = field(default_factory=list)  # id, lane, position
    lanes: dict[int, tuple[WaitReason, str]] = field(default_factory=dict)
    waiters: list[Waiter] = field(default_factory=list)
    agreement: Agreement | None = None

    def reject(self, sequence_id: str, reason: ErrorReason, message: str, retry_after_ms: int = 0) -> None:
        """A sequence will not be admitted."""
        self.rejections.append(Rejection(sequence_id, reason, message, retry_after_ms))

    @property
    def urgent(self) -> bool:
        """True if it is worth a message of its own between steps."""
        told = (self.grants, self.rejections, self.recompute, self.preemptions, self.reclaim)
        return any(told) or bool(self.cancelled or self.attach)


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a session its decisions; `step` 0 is a push."""

    session_id: str
    step: int
    acknowledged_delta: int
    decisions: Decisions
    binding_count: int
    residents_count: int
    waiting_count: int
    decode_count: int


@dataclass(frozen=True, slots=True)
class AdmissionStarted:
    """A sequence joined the queue: its admission span begins."""

    sequence_id: str
    traceparent: str
    demand: int
    position: int


@dataclass(frozen=True, slots=True)
class AdmissionEnded:
    """admitted | rejected | expired | cancelled: the admission span ends (section 7)."""

    sequence_id: str
    outcome: str
    reason: str
    demand: int
    slots: tuple[int, ...]
    position: int
    waited_ms: int
    bind_ms: int
    ms_by_reason: dict[WaitReason, int]
    history: tuple[tuple[WaitReason, int, int, str], ...]  # reason, from ms, for ms, detail
    cap: int | None
    residents: int
    limiting_ranks: tuple[int, ...]
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """Readiness or agreement changed; `sentence` is for logs and people."""

    ready: bool
    agreement: Agreement
    sentence: str


@dataclass(frozen=True, slots=True)
class TermRaised:
    """A rank had heard this term already: the scheduler leads with a higher one, to be kept (D6)."""

    term: int


@dataclass(frozen=True, slots=True)
class Deposed:
    """A rank follows a higher term: another scheduler leads, this one must stop (rule D4)."""

    sentence: str


Effect = (
    Orders
    | CommitAgreement
    | HearLedger
    | Tell
    | AdmissionStarted
    | AdmissionEnded
    | GroupChanged
    | TermRaised
    | Deposed
    | NoProgress
)

"""What the scheduler knows of one executor's session. A record, not an actor."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_svc.core.effects import Decisions, Tell
from scheduler_svc.core.events import Generation
from scheduler_svc.core.kv_pages import KvBook
from scheduler_svc.core.sequence import Sequence

__all__ = ["Session"]


@dataclass(slots=True)
class Session:
    """`outbox` collects what it is told next; `left_*` is the room for newcomers."""

    id: str
    executor: str
    attaches_pools: bool
    listed: bool = False  # its whole list was heard at least once (rules D3, D5)
    streaming: bool = False  # a stream is open and its list was heard
    acknowledged_delta: int = 0
    step: int = 0  # last one asked
    completed_step: int = 0
    attached: dict[int, str] = field(default_factory=dict)  # rank -> boot id of the pool it maps

    decode_count: int = 0  # sequences that decode in the next step
    chunking: dict[str, Sequence] = field(default_factory=dict)  # context work, in grant order
    fenced: list[tuple[int, int, Generation, Sequence]] = field(
        default_factory=list
    )  # heap by last step (rule C2)
    left_tokens: int = 0  # of the next step's budget, for newcomers (rule A8)
    left_sequences: int = 0
    engine_budgets: bool = False  # the engine plans chunks and pages (rule A8)
    kv: KvBook = field(default_factory=lambda: KvBook(full_length=False, extra_tokens=1))

    outbox: Decisions = field(default_factory=Decisions)
    last_answer: Tell | None = None

    def take_outbox(self) -> Decisions:
        """What it is told now; the next outbox is empty."""
        outbox, self.outbox = self.outbox, Decisions()
        return outbox

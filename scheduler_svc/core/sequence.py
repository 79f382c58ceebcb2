"""One sequence from arrival to end. A record; who moves it stands in the modules around it.

`move` is the only way to change the state: it asks the table of rule A3, so an illegal move changes
nothing and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_svc.core.events import Arrival, Generation
from scheduler_svc.core.reason_clock import ClosedSpell, Spell
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceEvent, SequenceState, next_state

__all__ = ["Sequence"]


@dataclass(slots=True, eq=False)
class Sequence:
    """Times are ms of the core's clock, positions counts of sequences."""

    arrival: Arrival
    session_id: str
    arrived_ms: int
    number: int  # of arrival in the group
    order: tuple[int, int, int]  # place in the queue, kept over take-backs and recomputes (rules A4, A11)
    state: SequenceState = SequenceState.WAITING
    slots: tuple[int, ...] = ()
    generation: Generation = (0, 0)
    computed_tokens: int = 0
    last_step: int = 0  # fence of RETIRING and LOST (rule C2)
    engine_word: str = ""  # why the engine is not ready for it (reason ENGINE)

    started: bool = False  # held a slot and lost it: goes before the unstarted of its priority
    preemptions_count: int = 0
    preemptible: bool = False  # noted among those who may be stopped
    kv_pages: int = 0  # reserved or promised (reason KV_PAGES)
    state_kept: bool = False  # in host memory: goes on from it in a new slot
    resumed: bool = False  # granted to go on from a state in host memory, which a decline leaves there
    nameless: str = ""  # its internal name once the id is free for others (transfer limits)

    lane: int = 0  # while waiting
    expires_ms: int = 0  # its longest wait ends then
    position_at_arrival: int = 0
    marks: dict[WaitReason, int] = field(default_factory=dict)  # lane's clock when it joined
    joined_ms: int = 0
    first_spell: Spell | None = None  # the reason it joined in, always kept (section 7)
    ms_by_reason: dict[WaitReason, int] = field(default_factory=dict)
    spells: list[ClosedSpell] = field(default_factory=list)
    passed_over_ms: int | None = None  # since when others pass it (rule A4)
    blocked_by: tuple[str, ...] = ()  # holders when it first blocked, at most 8 (section 7)

    chosen_ms: int = 0  # when its slot was chosen; the wait ends here
    told_ms: int = 0  # when it was granted
    unconfirmed: set[int] = field(default_factory=set)  # ranks whose confirmation of the bind is open
    refused: bool = False  # a rank refused the bind
    lost_on: set[int] = field(default_factory=set)  # ranks whose ledger does not have it any more (D2)
    let_go: bool = True  # False while LOST and the executor has not answered
    cancel_asked: bool = False  # from outside; its executor was told and ends it
    ending: str = ""  # outcome that waits for a transfer or a let-go to end first (scenario D03)

    @property
    def id(self) -> str:
        """The sequence id, or the internal name after its id was given up."""
        return self.nameless or self.arrival.sequence_id

    @property
    def waits(self) -> bool:
        """In the queue."""
        return self.state in (SequenceState.WAITING, SequenceState.SUSPENDED_HOST)

    @property
    def demand(self) -> int:
        """Slots it needs at once."""
        return self.arrival.demand

    @property
    def context_left(self) -> int:
        """Prompt tokens that are not computed."""
        return self.arrival.prompt_tokens - self.computed_tokens

    @property
    def waited_ms(self) -> int:
        """What its reasons add up to."""
        return sum(self.ms_by_reason.values())

    def can(self, event: SequenceEvent) -> bool:
        """True if the table allows the move."""
        return next_state(self.state, event) is not None

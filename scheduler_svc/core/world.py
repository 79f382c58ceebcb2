"""Everything one group's core knows, and the few moves that keep its counts true.

Counts are kept at the moves, never found by a scan (rule A3): residents are the owners in
`residents`, slots held are the sum of their demands plus what foreign ledger entries hold.
`check_integrity` derives every count a second way and names what differs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

from scheduler_svc.core.effects import Effect, GroupChanged
from scheduler_svc.core.events import Generation
from scheduler_svc.core.lanes import Lanes
from scheduler_svc.core.mirror import SlotMirror
from scheduler_svc.core.ranks import RankTable
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.settings import GroupSettings
from scheduler_svc.core.story import Ended
from stateroom.residency.agreement import Agreement
from stateroom.residency.answer import Bounded, Pending
from stateroom.residency.states import HOLDS_SLOT, SequenceEvent, SequenceState, next_state

__all__ = ["ENDED_KEPT", "World"]

ENDED_KEPT = 8192  # ended sequences that Explain still knows
RELEASES_KEPT = 64  # releases behind the measured release rate


class World:
    """State of one group's admission core."""

    def __init__(self, settings: GroupSettings, term: int) -> None:
        self.settings = settings
        self.term = term
        self.now_ms = 0
        self.ranks = RankTable(settings.ranks_count, settings.asked)
        self.mirror = SlotMirror(settings.ranks_count, 1)
        self.agreement = Agreement(Pending("no rank was heard yet"), settings.asked, ())
        self.committed: Agreement | None = None  # the agreement that the ranks were told last
        self.sessions: dict[str, Session] = {}
        self.sequences: dict[str, Sequence] = {}
        self.residents: dict[str, Sequence] = {}  # owners of slots, longest-holding first
        self.binding: dict[str, Sequence] = {}  # residents whose grant was not told yet
        self.lanes = Lanes()
        self.inits_binding = 0  # of them, disaggregated inits (reason TRANSFER_LIMIT)
        self.count_by_state: Counter[SequenceState] = Counter()
        self.held_slots = 0
        self.peak_residents = 0
        self.arrivals_count = 0
        self.generation_counter = 0
        self.draining = False
        self.refused_by_reason: Counter[str] = Counter()
        self.ended: OrderedDict[str, Ended] = OrderedDict()
        self.release_times_ms: deque[int] = deque(maxlen=RELEASES_KEPT)
        self.effects: list[Effect] = []
        self.ready_told: tuple[bool, str] | None = None

    @property
    def seats(self) -> int:
        """Slots that may be held now: those of the last committed agreement (rules B4, B8)."""
        return self.committed.seats if self.committed is not None else 0

    @property
    def cap(self) -> int | None:
        """The bound, None where unbounded or nothing is agreed."""
        answer = self.committed.answer if self.committed is not None else None
        return answer.slots_count if isinstance(answer, Bounded) else None

    @property
    def ready(self) -> bool:
        """New work may start: an agreement stands, every rank is ready, the group does not drain."""
        return self.seats > 0 and not self.ranks.pending_count and not self.draining

    def new_generation(self) -> Generation:
        """A name no ownership ever had (rule C3)."""
        self.generation_counter += 1
        return (self.term, self.generation_counter)

    def move(self, sequence: Sequence, event: SequenceEvent) -> None:
        """Moves a sequence by the table and keeps the counts by state and of slots held."""
        old, new = sequence.state, next_state(sequence.state, event)
        assert new is not None, f"{sequence.id} in {old} cannot move by {event.name}"
        sequence.state = new
        self.recount(sequence, old, new)

    def recount(self, sequence: Sequence, old: SequenceState | None, new: SequenceState | None) -> None:
        """Keeps owners and counts by state; a sequence of demand 0 holds nothing and counts nowhere (A11)."""
        if not sequence.demand:
            return
        if old is not None:
            self.count_by_state[old] -= 1
        if new is not None:
            self.count_by_state[new] += 1
        held, holds = old is not None and HOLDS_SLOT[old], new is not None and HOLDS_SLOT[new]
        if holds and not held:
            self._own(sequence)
        elif held and not holds:
            self._disown(sequence)

    def _own(self, sequence: Sequence) -> None:
        self.residents[sequence.id] = sequence
        self.held_slots += sequence.demand
        self.peak_residents = max(self.peak_residents, len(self.residents))

    def _disown(self, sequence: Sequence) -> None:
        del self.residents[sequence.id]
        self.held_slots -= sequence.demand
        self.release_times_ms.append(self.now_ms)

    def add(self, sequence: Sequence) -> None:
        """A sequence enters in the state it has (WAITING, or what a session's list says)."""
        assert sequence.id not in self.sequences, f"{sequence.id} is known already"
        self.sequences[sequence.id] = sequence
        self.recount(sequence, None, sequence.state)

    def forget(self, sequence: Sequence, ended: Ended) -> None:
        """A sequence ends; its story is kept for Explain."""
        del self.sequences[sequence.id]
        self.recount(sequence, sequence.state, None)
        self.ended[sequence.id] = ended
        self.ended.move_to_end(sequence.id)
        while len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)

    def enqueue(self, sequence: Sequence) -> None:
        """A waiter takes its place by its order; the session is told place and lane."""
        lane = self.lanes.join(sequence, self.now_ms)
        position = self.lanes.ahead_of(sequence)
        self.sessions[sequence.session_id].outbox.queued.append((sequence.id, lane.number, position))

    def requeue(self, sequence: Sequence) -> None:
        """A sequence waits again, at its old place and from the prompt's start (rules A11, D2)."""
        sequence.generation = (0, 0)
        sequence.computed_tokens = 0
        sequence.refused = False
        sequence.unconfirmed.clear()
        self.enqueue(sequence)

    def emit(self, effect: Effect) -> None:
        """Wants something done."""
        self.effects.append(effect)

    def tell_readiness(self, sentence: str) -> None:
        """Says once when readiness, agreement or the reason changed."""
        if self.ready_told != (self.ready, sentence):
            self.ready_told = (self.ready, sentence)
            self.emit(GroupChanged(self.ready, self.agreement, sentence))

"""Everything one group's core knows, and the few moves that keep its counts true.

Counts are kept at the moves, never found by a scan (rule A3): residents are the owners in
`residents`, slots held are the sum of their demands plus what foreign ledger entries hold.
`check_integrity` derives every count a second way and names what differs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

from scheduler_svc.core.effects import Effect, GroupChanged
from scheduler_svc.core.events import Generation
from scheduler_svc.core.kv_pages import size_class
from scheduler_svc.core.lanes import Lanes
from scheduler_svc.core.mirror import SlotMirror
from scheduler_svc.core.ranks import RankTable
from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.session import Session
from scheduler_svc.core.settings import GroupSettings
from scheduler_svc.core.shares import Shares
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
        self.shares = Shares(dict(settings.tenant_weights))
        self.waiting_tokens = 0
        self.expiries: list[tuple[int, int, Sequence]] = []  # heap of waits by their end (rule A6)
        self.transfer_limits: list[tuple[int, int, Sequence, int]] = []  # heap, with the generation counter
        self.preemptible: list[tuple[int, Generation, Sequence]] = []  # heap: lowest priority, youngest first
        self.preempting_for = ""  # the waiter that others were stopped for (scenario A14)
        self.cached: dict[str, Sequence] = {}  # states kept as caches, oldest first (rule A11)
        self.idle_steps = 0  # in a row, for the watchdog (rule A9)
        self.progress_ms = 0
        self.no_progress = ""
        self.visited_count = 0  # waiters and residents looked at, ever: a step must not scan (section 8)
        self.inits_binding = 0  # of them, disaggregated inits (reason TRANSFER_LIMIT)
        self.count_by_state: Counter[SequenceState] = Counter()
        self.slots_by_state: Counter[SequenceState] = Counter()
        self.held_slots = 0
        self.reclaiming_slots = 0  # of caches whose executor was asked to forget them
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

    def open_confirmed_seats(self) -> None:
        """After an agreement or a confirmation: grants go to the seats that every rank enforces (B3, B8)."""
        seats = min(self.seats, self.ranks.enforced_seats())
        if seats != self.mirror.seats:
            self.mirror.resize(seats)

    @property
    def cap(self) -> int | None:
        """The bound, None where unbounded or nothing is agreed."""
        answer = self.committed.answer if self.committed is not None else None
        return answer.slots_count if isinstance(answer, Bounded) else None

    @property
    def ready(self) -> bool:
        """New work may start: an agreement stands, every rank is ready, the group does not drain."""
        return self.seats > 0 and not self.ranks.pending_count and not self.draining

    def awaits(self, session_id: str) -> bool:
        """Whether a session holds slots here, to finish them: also where the cap has fallen to 0 (rule B8)."""
        if self.ranks.pending_count or self.draining:
            return False
        owners = {s.session_id for s in self.residents.values()}
        unclaimed = {e.session_id for claims in self.mirror.foreign.values() for e in claims.values()}
        return session_id in owners | unclaimed

    def lacking(self, slots: int) -> int:
        """Slots that so many more would lack, when all has come free that is on its way (scenario A13)."""
        coming = self.slots_by_state[SequenceState.LOST] + self.slots_by_state[SequenceState.RETIRING]
        held = self.held_slots + self.mirror.foreign_count
        return held + slots - self.seats - coming - self.reclaiming_slots

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
            self.slots_by_state[old] -= sequence.demand
        if new is not None:
            self.count_by_state[new] += 1
            self.slots_by_state[new] += sequence.demand
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

    def remove(self, sequence: Sequence) -> None:
        """A sequence ends."""
        del self.sequences[sequence.id]
        self.recount(sequence, sequence.state, None)

    def keep_story(self, ended: Ended) -> None:
        """The last stories are kept for Explain."""
        self.ended[ended.sequence_id] = ended
        self.ended.move_to_end(ended.sequence_id)
        while len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)

    def rename(self, sequence: Sequence, name: str) -> None:
        """Under another internal name, so that its id is free."""
        del self.sequences[sequence.id]
        held = self.residents.pop(sequence.id, None)
        sequence.nameless = name
        self.sequences[name] = sequence
        if held is not None:
            self.residents[name] = sequence

    def enqueue(self, sequence: Sequence) -> None:
        """A waiter takes its place by its order; the session is told place and lane."""
        session = self.sessions[sequence.session_id]
        lane = self.lanes.join(sequence, self.now_ms, size_class(session.kv, sequence))
        self.shares.joined(sequence)
        self.waiting_tokens += sequence.arrival.prompt_tokens + sequence.arrival.max_output_tokens
        session.outbox.queued.append((sequence.id, lane.number, self.lanes.ahead_of(sequence)))

    def dequeue(self, sequence: Sequence) -> None:
        """A waiter leaves the queue, with its time by reason added up."""
        self.lanes.leave(sequence, self.now_ms)
        self.shares.left(sequence)
        self.waiting_tokens -= sequence.arrival.prompt_tokens + sequence.arrival.max_output_tokens
        if self.preempting_for == sequence.id:
            self.preempting_for = ""

    def requeue(self, sequence: Sequence) -> None:
        """A sequence waits again, at its old place; from the prompt's start unless its state was kept."""
        sequence.generation = (0, 0)
        sequence.preemptible = False  # notes are of an ownership
        if not sequence.state_kept:
            sequence.computed_tokens = 0
        sequence.refused = False
        sequence.let_go = True
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

"""A group for tests of the admission core: the real core, ranks that are plain ledgers, a fake clock.

A rank here applies orders when `deliver()` says so, so that a test can hold confirmations back. Every
event is followed by the integrity check of the core and by a check of the ranks' ledgers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from scheduler_svc.core.core import AdmissionCore
from scheduler_svc.core.effects import (
    AdmissionEnded,
    AdmissionStarted,
    Chunk,
    CommitAgreement,
    Deposed,
    Effect,
    Grant,
    GroupChanged,
    HearLedger,
    Orders,
    Preemption,
    Recompute,
    Rejection,
    Tell,
)
from scheduler_svc.core.events import (
    Arrival,
    Attached,
    CancelAsked,
    Cancelled,
    Committed,
    DrainAsked,
    Event,
    Fact,
    Finished,
    Held,
    KvReported,
    LedgerEntry,
    LetGo,
    RankConfirmed,
    RankLedger,
    RankLost,
    RankReported,
    Ready,
    RefusedOrder,
    SessionList,
    SessionRegistered,
    StepMessage,
    StreamClosed,
    Suspension,
    Tick,
    TransferReported,
)
from scheduler_svc.core.explain import Explanation, describe, explain
from scheduler_svc.core.integrity import check_integrity
from scheduler_svc.core.settings import GroupSettings
from stateroom.residency.answer import Answer, Bounded, Unbounded
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState, SlotState

__all__ = ["CoreGroup", "FakeRank"]


class FakeRank:
    """A ledger that does what the rules say and nothing clever: the naive half of every test."""

    def __init__(self, number: int, answer: Answer, reserved_slots: int = 1) -> None:
        self.number = number
        self.answer = answer
        self.reserved_slots = reserved_slots
        self.boots = 1
        self.rows = 0
        self.seats = 0  # of the agreement it enforces
        self.commits: list[CommitAgreement] = []
        self.commits_held = False  # True: agreements are on their way until deliver_commits
        self.bound: dict[int, tuple[tuple[int, int], str, str]] = {}
        self.newest: dict[int, tuple[int, int]] = {}
        self.inbox: list[Orders] = []
        self.connected = True
        self.streams = 0  # opened so far; what an earlier one would say is not heard any more
        self.scrub_held = False  # True: released slots stay in scrubbing until let go
        self.scrubbing: list[int] = []
        self.refuse_binds = 0  # refuse this many next binds
        self.most_bound = 0

    @property
    def boot_id(self) -> str:
        return f"rank{self.number}-boot{self.boots}"

    def restart(self) -> None:
        self.boots += 1
        self.rows = self.seats = 0
        self.commits.clear()
        self.bound.clear()
        self.newest.clear()
        self.inbox.clear()
        self.scrubbing.clear()

    def commit(self, effect: CommitAgreement) -> Committed:
        """Rows are built once: a higher number is a fault of the scheduler (rule B8)."""
        rows = effect.agreement.rows(effect.reserved_slots)
        assert not self.rows or rows <= self.rows, (
            f"{self.rows} rows stand and {rows} are agreed: did RankReported carry built_rows?"
        )
        self.rows = self.rows or rows
        self.seats = effect.agreement.seats
        return Committed(self.number, effect.boot_id, self.rows, effect.agreement)

    def apply(self, orders: Orders) -> RankConfirmed:
        refused = []
        freed = []
        for release in orders.releases:
            owner = self.bound.get(release.slot)
            if owner is None or owner[0] != release.generation:
                refused.append(RefusedOrder(release.slot, release.generation, "NOT_BOUND", "not bound"))
                continue
            del self.bound[release.slot]
            (self.scrubbing if self.scrub_held else freed).append(release.slot)
        for bind in orders.binds:
            taken = bind.slot in self.bound or bind.slot in self.scrubbing
            stale = bind.generation <= self.newest.get(bind.slot, (0, 0))
            outside = not self.reserved_slots <= bind.slot < self.reserved_slots + self.seats
            if taken or stale or outside or self.refuse_binds:
                self.refuse_binds = max(0, self.refuse_binds - 1)
                reason = "SLOT_OUT_OF_RANGE" if outside else "SLOT_NOT_FREE"
                refused.append(RefusedOrder(bind.slot, bind.generation, reason, "not free"))
                continue
            self.bound[bind.slot] = (bind.generation, bind.sequence_id, bind.session_id)
            self.newest[bind.slot] = bind.generation
        self.most_bound = max(self.most_bound, len(self.bound))
        return RankConfirmed(
            self.number, orders.boot_id, orders.sequence_number, tuple(refused), tuple(freed)
        )

    def ledger(self) -> RankLedger:
        entries = [LedgerEntry(s, SlotState.BOUND, g, q, e) for s, (g, q, e) in self.bound.items()]
        entries += [LedgerEntry(s, SlotState.SCRUBBING, self.newest[s], "", "") for s in self.scrubbing]
        highest = max((g[1] for g in self.newest.values()), default=0)
        return RankLedger(self.number, self.boot_id, self.rows, tuple(entries), highest)


class CoreGroup:
    """Drives one core. `auto` delivers orders and confirmations at once."""

    def __init__(
        self,
        cap: int | None,
        *,
        ranks: int = 2,
        asked: int = 64,
        auto: bool = True,
        session: str = "e0",
        start: bool = True,
        **settings: object,
    ) -> None:
        defaults: dict[str, object] = {
            "max_step_tokens": 1024,
            "chunk_unit_tokens": 16,
            "max_chunk_tokens": 1024,
        }
        defaults.update(settings)
        self.settings = GroupSettings(ranks_count=ranks, max_batch_size=asked, **defaults)  # type: ignore[arg-type]
        self.core = AdmissionCore(self.settings, term=1)
        self.world = self.core.world
        answer: Answer = Unbounded() if cap is None else Bounded(cap)
        self.ranks = [FakeRank(n, answer) for n in range(ranks)]
        self.auto = auto
        self.now_ms = 1_000
        self.session = session
        self.step_number = 0
        self.delta_number: Counter[str] = Counter()
        self.arrivals: dict[str, Arrival] = {}
        self.grants: dict[str, Grant] = {}
        self.granted_order: list[str] = []
        self.rejected: dict[str, Rejection] = {}
        self.recompute: dict[str, Recompute] = {}
        self.preemptions: dict[str, Preemption] = {}
        self.reclaimed: list[str] = []
        self.chunks: list[Chunk] = []
        self.spans: list[AdmissionStarted | AdmissionEnded] = []
        self.log: list[Effect] = []
        self.deposed = ""
        if start:
            self.start()

    # ---- running ----

    def start(self) -> None:
        for rank in self.ranks:
            self.report(rank.number)
        self.handle(SessionRegistered(self.session, "test", True))
        self.listing(self.session)

    def report(self, number: int) -> None:
        rank = self.ranks[number]
        rank.connected = True
        self.handle(
            RankReported(number, rank.boot_id, rank.answer, rank.reserved_slots, True, built_rows=rank.rows)
        )

    def handle(self, event: Event) -> list[Effect]:
        done: list[Effect] = []
        queue: list[Event] = [event]
        while queue:
            for effect in self.core.handle(queue.pop(0), self.now_ms):
                done.append(effect)
                queue.extend(self._perform(effect))
            self.check()
        self.log.extend(done)
        return done

    def check(self) -> None:
        assert (errors := check_integrity(self.world)) == [], errors
        for rank in self.ranks:
            assert len(rank.bound) + len(rank.scrubbing) <= max(0, rank.rows - rank.reserved_slots)

    def _perform(self, effect: Effect) -> Iterable[Event]:
        match effect:
            case Orders():
                rank = self.ranks[effect.rank]
                if rank.connected and effect.boot_id == rank.boot_id:
                    rank.inbox.append(effect)
                    if self.auto:
                        return self.confirmations(effect.rank)
            case CommitAgreement():
                rank = self.ranks[effect.rank]
                rank.commits.append(effect)
                if not rank.commits_held:
                    return self.committed(effect.rank)
            case HearLedger():
                rank = self.ranks[effect.rank]
                rank.inbox.clear()
                rank.streams += 1
                return [rank.ledger()]
            case Tell():
                self._told(effect)
            case AdmissionStarted() | AdmissionEnded():
                self.spans.append(effect)
            case Deposed():
                self.deposed = effect.sentence
            case GroupChanged():
                pass
        return []

    def _told(self, tell: Tell) -> None:
        for grant in tell.decisions.grants:
            self.grants[grant.sequence_id] = grant
            self.granted_order.append(grant.sequence_id)
        for rejection in tell.decisions.rejections:
            self.rejected[rejection.sequence_id] = rejection
        for lost in tell.decisions.recompute:
            self.recompute[lost.sequence_id] = lost
        for stopped in tell.decisions.preemptions:
            self.preemptions[stopped.sequence_id] = stopped
        self.reclaimed += [reclaim.sequence_id for reclaim in tell.decisions.reclaim]
        if tell.step:
            self.chunks = tell.decisions.chunks

    def committed(self, number: int) -> list[Event]:
        """What a rank answers to the agreements it was told."""
        rank = self.ranks[number]
        told, rank.commits = [c for c in rank.commits if c.boot_id == rank.boot_id], []
        return [rank.commit(effect) for effect in told]

    def deliver_commits(self, number: int) -> None:
        """A rank takes what it was told, and its answers arrive."""
        for event in self.committed(number):
            self.handle(event)

    def confirmations(self, number: int) -> list[Event]:
        rank = self.ranks[number]
        events: list[Event] = [rank.apply(orders) for orders in rank.inbox]
        rank.inbox.clear()
        return events

    def deliver(self, number: int) -> None:
        """A rank applies what was sent to it, and its confirmations arrive, unless the stream is opened anew."""
        stream = self.ranks[number].streams
        for event in self.confirmations(number):
            if self.ranks[number].streams == stream:
                self.handle(event)

    def scrubbed(self, number: int) -> None:
        """A rank's scrub thread finishes."""
        rank = self.ranks[number]
        freed, rank.scrubbing = tuple(rank.scrubbing), []
        self.handle(RankConfirmed(number, rank.boot_id, 0, (), freed))

    def lose(self, number: int) -> None:
        self.ranks[number].connected = False
        self.ranks[number].inbox.clear()
        self.handle(RankLost(number, "connection refused"))

    def restart(self, number: int) -> None:
        """kill -9 and a new process."""
        self.lose(number)
        self.ranks[number].restart()
        self.report(number)

    def tick(self, ms: int = 0) -> None:
        self.now_ms += ms
        self.handle(Tick())

    # ---- the executor ----

    def send(
        self, *facts: Fact, step: int = 0, completed: int | None = None, session: str = ""
    ) -> Tell | None:
        name = session or self.session
        self.delta_number[name] += 1
        done = completed if completed is not None else max(0, step - 1)
        message = StepMessage(name, self.delta_number[name], step, done, facts)
        tells = [e for e in self.handle(message) if isinstance(e, Tell) and e.step == step and step]
        return tells[0] if tells else None

    def listing(self, session: str, held: tuple[Held, ...] = (), waiting: tuple[Arrival, ...] = ()) -> None:
        self.delta_number[session] += 1
        self.handle(StepMessage(session, self.delta_number[session], 0, 0, (), SessionList(held, waiting)))

    def step(self, *facts: Fact, completed: int | None = None, ms: int = 0) -> Tell:
        """One step of the executor; by default all earlier steps are done."""
        self.now_ms += ms
        self.step_number += 1
        tell = self.send(*facts, step=self.step_number, completed=completed)
        assert tell is not None, f"step {self.step_number} was not answered"
        return tell

    def arrival(
        self, name: str, kind: str = "context", prompt: int = 16, output: int = 8, **more: object
    ) -> Arrival:
        arrival = Arrival(name, kind, prompt, output, **more)  # type: ignore[arg-type]
        self.arrivals[name] = arrival
        return arrival

    def submit(self, *names: str, **more: object) -> None:
        """Arrivals between steps."""
        self.send(*(self.arrival(name, **more) for name in names))  # type: ignore[arg-type]

    def finish(self, *names: str, last_step: int | None = None) -> None:
        last = self.step_number if last_step is None else last_step
        self.send(
            *(Finished(name, self.grants[name].generation, last) for name in names),
            completed=self.step_number,
        )

    def cancel(self, *names: str) -> None:
        self.send(*(Cancelled(name) for name in names), completed=self.step_number)

    def transfer(self, name: str, event: str) -> None:
        self.send(TransferReported(name, self.grants[name].generation, event), completed=self.step_number)

    def suspend(self, name: str, suspended: bool = True) -> None:
        self.send(Suspension(name, self.grants[name].generation, suspended), completed=self.step_number)

    def let_go(self, name: str, last_step: int | None = None) -> None:
        last = self.step_number if last_step is None else last_step
        self.send(LetGo(name, self.recompute[name].generation, last), completed=self.step_number)

    def preempted_let_go(self, name: str, state_kept: bool = False) -> None:
        """The executor stopped a preempted sequence; no step uses its slot any more."""
        generation = self.preemptions[name].generation
        self.send(LetGo(name, generation, self.step_number, state_kept), completed=self.step_number)

    def send_ready(self, *names: str) -> None:
        self.send(*(Ready(name) for name in names), completed=self.step_number)

    def report_kv(self, page_tokens: int, total: int, free: int) -> None:
        self.send(KvReported(page_tokens, total, free), completed=self.step_number)

    def attached(self, number: int) -> None:
        self.send(Attached(number, self.ranks[number].boot_id), completed=self.step_number)

    def cancel_from_outside(self, name: str) -> None:
        self.handle(CancelAsked(name))

    def drain(self) -> None:
        self.handle(DrainAsked())

    def close_stream(self) -> None:
        self.handle(StreamClosed(self.session))

    # ---- reading ----

    def state(self, name: str) -> SequenceState | None:
        sequence = self.world.sequences.get(name)
        return sequence.state if sequence is not None else None

    def reason(self, name: str) -> WaitReason | None:
        return self.explain(name).reason

    def explain(self, name: str) -> Explanation:
        return explain(self.world, name)

    @property
    def residents(self) -> list[str]:
        return list(self.world.residents)

    @property
    def waiting(self) -> list[str]:
        return [s.id for s in self.world.sequences.values() if s.state is SequenceState.WAITING]

    def residents_by_state(self) -> dict[SequenceState, int]:
        return describe(self.world).residents_by_state

"""The core and the naive model, driven by the same random events: same verdicts, reasons, counts.

STATEROOM_SOAK=1 makes it long (`make soak`).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler_svc.core.events import Finished
from stateroom.residency.answer import Bounded
from stateroom.residency.states import SequenceState
from tests.scheduler import naive_model
from tests.scheduler.core_group import CoreGroup
from tests.scheduler.naive_model import NaiveModel

SOAK = bool(os.environ.get("STATEROOM_SOAK"))
EXAMPLES, STEPS = (4000, 100) if SOAK else (125, 80)  # 125 x 80 = 10,000 steps


class CoreBesideModel(RuleBasedStateMachine):
    """One rule an event; after each, both are compared."""

    @initialize(cap=st.integers(1, 5))
    def start(self, cap: int) -> None:
        self.group = CoreGroup(
            cap=cap,
            asked=6,
            max_step_tokens=naive_model.STEP_TOKENS,
            max_chunk_tokens=naive_model.CHUNK_TOKENS,
            chunk_unit_tokens=naive_model.UNIT,
            transfers_max=naive_model.TRANSFERS,
            starvation_ms=naive_model.STARVATION_MS,
            aging_ms=0,
            tenant_weights=tuple(naive_model.WEIGHTS.items()),
        )
        self.model = NaiveModel(cap, asked=6)
        self.model.now_ms = self.group.now_ms
        self.count = 0
        self.fenced: set[str] = set()

    def _settle(self) -> None:
        self.model.admit()

    def _held(self, *states: str) -> list[str]:
        return sorted(s.name for s in self.model.seqs if s.state in states and not s.ending)

    def _may_end(self, *states: str) -> list[str]:
        """While a rank is lost nothing that holds ends here: its rows would come free later than the
        other rank's, in passes that the model does not have."""
        return [] if self.model.pending else self._held(*states)

    @rule(
        kind=st.sampled_from(["context", "context", "generation_init", "context_only"]),
        prompt=st.integers(1, 90),
        output=st.integers(1, 40),
        demand=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.sampled_from([0, 0, 1]),
        tenant=st.sampled_from(["a", "b"]),
    )
    def submit(self, kind: str, prompt: int, output: int, demand: int, priority: int, tenant: str) -> None:
        self.count += 1
        name = f"q{self.count}"
        self.model.submit(name, kind, prompt, output, demand, priority, tenant)
        self._settle()
        self.group.submit(
            name, kind=kind, prompt=prompt, output=output, demand=demand, priority=priority, tenant=tenant
        )

    @rule(behind=st.integers(0, 2), ms=st.sampled_from([0, 20, 70]))
    def step(self, behind: int, ms: int) -> None:
        model, group = self.model, self.group
        model.now_ms += ms
        model.step += 1
        completed = model.completed if model.pending else max(model.completed, model.step - 1 - behind)
        model.complete(completed)
        decodes, chunks = model.plan()
        self._settle()
        tell = group.step(completed=completed, ms=ms)
        told = [(c.sequence_id, c.start, c.tokens) for c in tell.decisions.chunks]
        assert (tell.decode_count, told) == (decodes, chunks)

    @precondition(lambda self: self._may_end("CONTEXT", "DECODE", "SUSPENDED", "GENERATION_INIT"))
    @rule(data=st.data(), ahead=st.integers(0, 1))
    def finish(self, data: st.DataObject, ahead: int) -> None:
        name = data.draw(st.sampled_from(self._held("CONTEXT", "DECODE", "SUSPENDED", "GENERATION_INIT")))
        last = self.model.step + ahead
        self.model.end(name, last)
        self.model.complete(self.model.completed)
        self._settle()
        generation = self.group.grants[name].generation
        self.group.send(Finished(name, generation, last), completed=self.model.completed)

    @precondition(lambda self: any(not s.holds or not self.model.pending for s in self.model.seqs))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        names = sorted(s.name for s in self.model.seqs if not s.holds or not self.model.pending)
        name = data.draw(st.sampled_from(names))
        self.model.end(name, -1)
        self.model.complete(self.model.completed)
        self._settle()
        self._say(lambda: self.group.cancel(name))

    @precondition(lambda self: self._may_end("GENERATION_INIT", "TRANSFER_IN", "TRANSFER_OUT"))
    @rule(data=st.data(), event=st.sampled_from(["started", "completed", "completed", "failed"]))
    def transfer(self, data: st.DataObject, event: str) -> None:
        name = data.draw(st.sampled_from(self._held("GENERATION_INIT", "TRANSFER_IN", "TRANSFER_OUT")))
        self.model.transfer(name, event)
        self.model.complete(self.model.completed)
        self._settle()
        self._say(lambda: self.group.transfer(name, event))

    @precondition(lambda self: self._held("CONTEXT", "DECODE", "SUSPENDED"))
    @rule(data=st.data(), suspended=st.booleans())
    def suspend(self, data: st.DataObject, suspended: bool) -> None:
        name = data.draw(st.sampled_from(self._held("CONTEXT", "DECODE", "SUSPENDED")))
        self.model.suspend(name, suspended)
        self._settle()
        self._say(lambda: self.group.suspend(name, suspended))

    def _say(self, call) -> None:
        """With the model's count of completed steps, not the harness's own."""
        kept, self.group.step_number = self.group.step_number, self.model.completed
        try:
            call()
        finally:
            self.group.step_number = kept

    @rule(cap=st.integers(1, 6))
    def change_cap(self, cap: int) -> None:
        if self.model.pending:
            return
        self.model.set_cap(cap)
        self._settle()
        for rank in self.group.ranks:
            rank.answer = Bounded(cap)
            self.group.report(rank.number)

    @rule()
    def lose_rank(self) -> None:
        if not self.model.pending:
            self.model.pending = True
            self._settle()
            self.group.lose(1)

    @rule()
    def rank_is_back(self) -> None:
        if self.model.pending:
            self.model.pending = False
            self._settle()
            self.group.report(1)

    @rule(ms=st.sampled_from([10, 60]))
    def tick(self, ms: int) -> None:
        self.model.now_ms += ms
        self._settle()
        self.group.tick(ms)

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "group"):
            return
        group, model = self.group, self.model
        states = {s.name: s.state for s in model.seqs}
        assert {s.id: s.state.value for s in group.world.sequences.values()} == states
        assert group.granted_order == model.granted
        assert {name: r.reason.value for name, r in group.rejected.items()} == model.rejected
        reasons = {s.name: s.reason for s in model.seqs if not s.holds}
        assert {name: str(group.reason(name)) for name in reasons} == reasons
        held = sum(s.demand for s in model.seqs if s.holds)
        assert group.world.held_slots == held
        assert all(len(rank.bound) == held for rank in group.ranks if rank.connected)
        assert group.world.count_by_state[SequenceState.WAITING] == len(reasons)


CoreBesideModel.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=not SOAK,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestCoreBesideModel = CoreBesideModel.TestCase

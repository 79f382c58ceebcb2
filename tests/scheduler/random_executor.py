"""An executor that does anything its contract allows, at random, on a CoreGroup."""

from __future__ import annotations

from dataclasses import replace

from scheduler_svc.core.core import AdmissionCore
from scheduler_svc.core.events import (
    AllStatesVoid,
    Cancelled,
    DemandChanged,
    EnginePreempted,
    Finished,
    GrantAnswered,
    LetGo,
    RankReported,
    Ready,
    SessionRegistered,
    Suspension,
    TransferReported,
)
from stateroom.residency.answer import Bounded
from stateroom.residency.states import SequenceState
from tests.scheduler.random_book import Mine, RandomBook

S = SequenceState
_TRANSFERS = (S.GENERATION_INIT, S.TRANSFER_IN, S.TRANSFER_OUT)
_RUNS = (S.CONTEXT, S.DECODE)


class RandomExecutor(RandomBook):
    """`act` does one thing; `end` lets everything come to its end."""

    def act(self) -> None:
        getattr(self, f"do_{self.random.choice(ACTS)}")()

    def do_submit(self) -> None:
        self.count += 1
        random, name = self.random, f"q{self.count}"
        self.waits[name] = self.arrival(
            name,
            kind=random.choice(["context", "context", "generation_init", "context_only"]),
            prompt=random.randint(1, 90),
            demand=random.choice([1, 1, 1, 0, 2, 3]),
            priority=random.choice([0, 0, 1, 3]),
            tenant=random.choice("ab"),
            engine_hold=random.choice(["", "", "", "not yet"]),
        )
        self.say(self.waits[name])

    def do_step(self, behind: int | None = None) -> None:
        if not self.open:
            return
        self.now_ms += self.random.choice([0, 10, 60])
        self.step_number += 1
        late = self.random.randint(0, 2) if behind is None else behind
        self.done = max(self.done, self.step_number - 1 - late)
        self.say(step=self.step_number)

    def do_finish(self) -> None:
        if name := self._pick(lambda m: not m.void):
            grant = self._fence(name, S.RETIRING)
            self.say(Finished(name, grant.generation, self.step_number))

    def do_keep_as_cache(self) -> None:
        if name := self._pick(lambda m: m.state is S.DECODE and not m.void and m.arrival.demand > 0):
            self.holds[name].state, self.holds[name].unanswered = S.CACHED, False
            fact = Finished(name, self.holds[name].grant.generation, self.step_number, keep_as_cache=True)
            self.say(fact)

    def do_cancel(self) -> None:
        if self.waits:
            name = self.random.choice(sorted(self.waits))
            del self.waits[name]
            self.say(Cancelled(name))

    def do_cancel_in_transfer(self) -> None:
        if name := self._pick(lambda m: m.state in (S.TRANSFER_IN, S.TRANSFER_OUT) and not m.void):
            self.holds[name].cancelled = True
            self.say(Cancelled(name))

    def do_cancel_from_outside(self) -> None:
        if names := sorted(name for name in self.waits if name in self.world.sequences):
            self.cancel_from_outside(self.random.choice(names))

    def do_decline(self) -> None:
        if name := self._pick(lambda m: m.unanswered and not (m.void or m.cancelled)):
            mine = self.holds.pop(name)
            self.waits[name] = mine.arrival
            self.say(GrantAnswered(name, mine.grant.generation, "no"))

    def do_start(self) -> None:
        for mine in self.holds.values():
            mine.unanswered = False

    def do_ready(self) -> None:
        self.say(*(Ready(name) for name in sorted(self.waits) if self.random.random() < 0.5))

    def do_suspend(self) -> None:
        if name := self._pick(lambda m: m.state in (*_RUNS, S.SUSPENDED) and not m.void):
            mine = self.holds[name]
            suspended = mine.state is not S.SUSPENDED
            mine.state, mine.unanswered = S.SUSPENDED if suspended else mine.goes_on, False
            self.say(Suspension(name, mine.grant.generation, suspended))

    def do_preempt(self) -> None:
        if name := self._pick(lambda m: m.state in _RUNS and not m.void):
            grant, kept = self._fence(name, S.LOST), self.random.random() < 0.5
            self.say(EnginePreempted(name, grant.generation, self.step_number, kept))

    def do_let_go(self) -> None:
        if name := self._pick(lambda m: m.void):
            grant, kept = self._fence(name, S.LOST), self.random.random() < 0.5
            self.say(LetGo(name, grant.generation, self.step_number, kept))

    def do_void_all(self) -> None:
        for name, mine in list(self.holds.items()):
            if mine.grant.slots:  # demand 0 has no state
                self._fence(name, S.RETIRING if mine.state is S.CACHED else S.LOST)
        self.say(AllStatesVoid(self.step_number))

    def do_transfer(self) -> None:
        if name := self._pick(lambda m: m.state in _TRANSFERS and not m.void):
            mine, event = self.holds[name], self.random.choice(["started", "completed", "failed"])
            mine.unanswered = False
            if event == "started" and mine.state is not S.GENERATION_INIT:
                return
            if event == "started":
                mine.state = S.TRANSFER_IN
            elif event == "completed" and mine.state is not S.TRANSFER_OUT and not mine.cancelled:
                mine.state, mine.computed = S.DECODE, mine.arrival.prompt_tokens
            else:
                del self.holds[name]
            self.say(TransferReported(name, mine.grant.generation, event))

    def do_change_demand(self) -> None:
        if self.waits:
            name, demand = self.random.choice(sorted(self.waits)), self.random.randint(0, 3)
            self.waits[name] = replace(self.waits[name], demand=demand)
            self.say(DemandChanged(name, demand))

    def do_lose_rank(self) -> None:
        self.lose(self.random.randrange(len(self.ranks)))

    def do_restart_rank(self) -> None:
        self.restart(self.random.randrange(len(self.ranks)))

    def do_find_ranks(self) -> None:
        for rank in self.ranks:
            if not rank.connected:
                self.report(rank.number)

    def do_deliver(self) -> None:
        self.deliver(self.random.randrange(len(self.ranks)))

    def do_tick(self) -> None:
        self.tick(self.random.choice([1, 50, 120]))

    def do_change_cap(self) -> None:
        self.ranks[0].answer = Bounded(self.random.randint(1, self.cap_max))
        if self.ranks[0].connected:
            self.report(0)

    def do_break_stream(self) -> None:
        self.close_stream()
        self.open = False

    def do_list(self) -> None:
        self.whole_list()

    def do_take_over(self) -> None:
        """Another scheduler leads; what was sent to the ranks by the old one is refused there."""
        term = self.world.term
        self.core = AdmissionCore(self.settings, term=1)
        self.world = self.core.world
        for rank in self.ranks:
            rank.inbox.clear()
            rank.connected = True
        for rank in self.ranks:
            self.handle(RankReported(rank.number, rank.boot_id, rank.answer, 1, True, term, rank.rows))
        self.handle(SessionRegistered(self.session, "test", True))
        self.delta_number[self.session] = 0
        self.whole_list()

    # ---- the end ----

    def end(self, rounds_max: int = 400) -> None:
        """Everything that is held is finished, everything that waits gets its turn."""
        self.auto = True
        if not self.open:
            self.whole_list()
        self.do_find_ranks()
        for _ in range(rounds_max):
            for rank in self.ranks:
                self.deliver(rank.number)
            self.say(*(Ready(name) for name in sorted(self.waits)))
            for name, mine in list(self.holds.items()):
                self._end(name, mine)
            self.do_step(behind=0)
            self.tick(1_000)
            if not (self.waits or self.holds or self.fenced):
                break
        self.do_step(behind=0)

    def _end(self, name: str, mine: Mine) -> None:
        if mine.void:
            grant = self._fence(name, S.LOST)
            self.say(LetGo(name, grant.generation, self.step_number))
        elif mine.cancelled and mine.state in _TRANSFERS:
            del self.holds[name]
            self.say(TransferReported(name, mine.grant.generation, "completed"))
        else:
            grant = self._fence(name, S.RETIRING)
            self.say(Finished(name, grant.generation, self.step_number))


_OFTEN = {
    "submit": 8,
    "step": 10,
    "deliver": 4,
    "finish": 3,
    "transfer": 3,
    "let_go": 3,
    "suspend": 2,
    "ready": 2,
}
ACTS = [
    name.removeprefix("do_")
    for name in vars(RandomExecutor)
    if name.startswith("do_")
    for _ in range(_OFTEN.get(name.removeprefix("do_"), 1))
]

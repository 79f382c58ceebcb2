"""The book of a random executor: see random_executor.py.

It keeps a book as the SDK does: what it holds, what waits, what it let go behind a fence; facts said into
a broken stream are lost, and the whole list makes them good (rule D5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from scheduler_svc.core.effects import Grant, Recompute, Tell
from scheduler_svc.core.events import (
    Arrival,
    Cancelled,
    Fact,
    Finished,
    Held,
    SessionList,
    StepMessage,
)
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


@dataclass
class Mine:
    arrival: Arrival
    grant: Grant
    state: SequenceState
    computed: int
    last_step: int = 0
    unanswered: bool = True  # the grant may be declined
    void: bool = False  # told RECOMPUTE or to stop, not let go yet
    cancelled: bool = False  # in mid-transfer

    @property
    def goes_on(self) -> SequenceState:
        if self.computed >= self.arrival.prompt_tokens:
            return S.DECODE
        return S.GENERATION_INIT if self.arrival.kind == "generation_init" else S.CONTEXT


class RandomBook(CoreGroup):
    """What it holds, hears and says."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.waits: dict[str, Arrival] = {}
        self.holds: dict[str, Mine] = {}
        self.fenced: dict[str, Mine] = {}
        self.unsaid: list[Fact] = []
        self.done = self.count = 0
        self.open = True
        self.cap_max = random.randint(1, 4)
        super().__init__(
            self.cap_max,
            ranks=random.randint(1, 3),
            asked=8,
            auto=random.random() < 0.5,
            max_step_tokens=64,
            max_chunk_tokens=48,
            preemption=random.choice(["off", "recompute", "suspend"]),
            preemptions_max=9,
            starvation_ms=50,
            aging_ms=random.choice([0, 100]),
            transfers_max=random.choice([0, 2]),
            wait_ms_max=random.choice([200, 10**6]),
            tenant_weights=(("a", 2), ("b", 1)),
            waiting_max=20,
        )

    # ---- what it hears ----

    def _told(self, tell: Tell) -> None:
        super()._told(tell)
        told = tell.decisions
        for grant in told.grants:
            arrival = self.waits.pop(grant.sequence_id, None)
            if arrival is None:  # crossed a cancel
                self.unsaid.append(Finished(grant.sequence_id, grant.generation, 0))
                continue
            mine = Mine(arrival, grant, S.CONTEXT, grant.computed_tokens)
            mine.state = mine.goes_on
            self.holds[grant.sequence_id] = mine
        for chunk in told.chunks:
            if (mine := self.holds.get(chunk.sequence_id)) is not None:
                mine.computed = chunk.start + chunk.tokens
                if chunk.last:
                    mine.state = S.TRANSFER_OUT if mine.arrival.kind == "context_only" else S.DECODE
        for rejection in told.rejections:
            self.waits.pop(rejection.sequence_id, None)
        for lost in (*told.recompute, *told.preemptions):
            held = self.holds.get(lost.sequence_id)
            if held is not None and held.grant.generation == lost.generation:
                held.void = True
                held.computed = 0 if isinstance(lost, Recompute) else held.computed
        for name in told.cancelled:
            self.waits.pop(name, None)

    # ---- what it says ----

    def say(self, *facts: Fact, step: int = 0) -> None:
        self.unsaid += facts
        self._complete()
        if self.open:
            said, self.unsaid = tuple(self.unsaid), []
            self.send(*said, step=step, completed=self.done)

    def _complete(self) -> None:
        for name, mine in list(self.fenced.items()):
            if mine.last_step <= self.done:
                del self.fenced[name]
                if mine.state is S.LOST and not mine.cancelled:
                    self.waits[name] = mine.arrival

    def whole_list(self) -> None:
        held = [_claim(m, m.goes_on if m.void else m.state) for m in self.holds.values()]
        held += [_claim(m, m.state) for m in self.fenced.values()]
        cancels = tuple(Cancelled(name) for name, m in self.holds.items() if m.cancelled)
        self.unsaid, self.open = [], True
        self.delta_number[self.session] += 1
        number, waiting = self.delta_number[self.session], tuple(self.waits.values())
        listed = SessionList(tuple(held), waiting)
        self.handle(StepMessage(self.session, number, 0, self.done, cancels, listed))

    def _fence(self, name: str, state: SequenceState) -> Grant:
        mine = self.holds.pop(name)
        mine.state, mine.last_step = state, self.step_number
        self.fenced[name] = mine
        return mine.grant

    def _pick(self, fits: Callable[[Mine], bool]) -> str:
        names = sorted(name for name, mine in self.holds.items() if fits(mine))
        return self.random.choice(names) if names else ""


def _claim(mine: Mine, state: SequenceState) -> Held:
    grant = mine.grant
    return Held(mine.arrival, grant.slots, grant.generation, state, mine.computed, mine.last_step)

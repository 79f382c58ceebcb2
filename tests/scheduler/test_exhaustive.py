"""Every reachable state of small worlds: the real core, ranks that confirm, fall and come back in any
order, an executor that starts, ends and lets go in any order.

Safety: the integrity of the core and of every rank's ledger holds after each event (CoreGroup.check).
Liveness: from every state the end of everything can still be reached; so there is none in which a
candidate exists, slots are free and nothing can ever start. Larger worlds run in `make soak`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import pytest

from stateroom.residency.states import HOLDS_SLOT, SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


@dataclass(frozen=True)
class WorldOf:
    """What happens in a world: its sequences by kind and demand, and how many falls of ranks."""

    ranks: int
    cap: int
    sequences: tuple[tuple[str, int], ...]
    falls: int = 0
    restarts: int = 0
    cancels: bool = True
    states_min: int = 100


WORLDS = {
    "two sequences, one slot, two ranks that lose the connection twice": WorldOf(
        2, 1, (("context", 1), ("generation_init", 1)), falls=2, states_min=1_000
    ),
    "two sequences, one slot, two ranks that restart, cancels": WorldOf(
        2, 1, (("context", 1), ("context", 1)), restarts=2, states_min=1_000
    ),
    "three sequences, two slots, one of them needs both": WorldOf(
        1, 2, (("context", 1), ("context", 2), ("context", 1)), falls=1, states_min=1_000
    ),
    "three ranks, two sequences, a fall and a restart": WorldOf(
        3, 1, (("context", 1), ("context_only", 1)), falls=1, restarts=1, cancels=False, states_min=1_000
    ),
}
if os.environ.get("STATEROOM_SOAK"):
    WORLDS["three ranks, three sequences, cap 2, a restart"] = WorldOf(
        3, 2, (("context", 1), ("generation_init", 1), ("context", 2)), restarts=1, states_min=10_000
    )
    WORLDS["two ranks, four sequences, cap 2, a fall"] = WorldOf(
        2, 2, (("context", 1),) * 3 + (("context_only", 1),), falls=1, states_min=10_000
    )


class State:
    """One state: a group, what was submitted, how many faults are left."""

    def __init__(self, world: WorldOf) -> None:
        self.world = world
        self.group = CoreGroup(cap=world.cap, ranks=world.ranks, asked=8, auto=False)
        self.submitted = 0
        self.cancelled: set[str] = set()
        self.falls, self.restarts = world.falls, world.restarts

    def moves(self) -> Iterator[tuple[str, Callable[[State], None]]]:
        """Everything that may happen next."""
        group = self.group
        if self.submitted < len(self.world.sequences):
            yield "submit", State.submit
        yield "step", lambda state: state.group.step() and None
        for rank in group.ranks:
            number = rank.number
            if not rank.connected:
                yield f"back {number}", lambda state, n=number: state.group.report(n)
                continue
            if rank.inbox:
                yield f"deliver {number}", lambda state, n=number: state.group.deliver(n)
            if self.falls:
                yield f"fall {number}", lambda state, n=number: state.fall(n)
            if self.restarts:
                yield f"restart {number}", lambda state, n=number: state.restart(n)
        for name in list(group.world.sequences):
            yield from self._moves_of(name)

    def _moves_of(self, name: str) -> Iterator[tuple[str, Callable[[State], None]]]:
        sequence = self.group.world.sequences[name]
        told = name in self.group.grants and self.group.grants[name].generation == sequence.generation
        if self.world.cancels and name not in self.cancelled and sequence.state is not S.RETIRING:
            yield f"cancel {name}", lambda state: state.cancel(name)
        if sequence.state in (S.CONTEXT, S.DECODE) and told:
            yield f"finish {name}", lambda state: state.group.finish(name)
            yield (
                f"finish late {name}",
                lambda state: state.group.finish(name, last_step=state.group.step_number + 1),
            )
        if sequence.state in (S.GENERATION_INIT, S.TRANSFER_IN, S.TRANSFER_OUT) and told:
            for event in ("started", "completed", "failed"):
                yield f"{event} {name}", lambda state, e=event: state.group.transfer(name, e)
        if sequence.state is S.LOST and not sequence.let_go:
            yield f"let go {name}", lambda state: state.group.let_go(name)

    def submit(self) -> None:
        kind, demand = self.world.sequences[self.submitted]
        self.group.submit(f"q{self.submitted}", kind=kind, demand=demand)
        self.submitted += 1

    def cancel(self, name: str) -> None:
        self.cancelled.add(name)
        self.group.cancel(name)

    def fall(self, number: int) -> None:
        self.falls -= 1
        self.group.lose(number)

    def restart(self, number: int) -> None:
        self.restarts -= 1
        self.group.restart(number)

    @property
    def is_over(self) -> bool:
        everything = self.submitted == len(self.world.sequences)
        bound = any(rank.bound or rank.inbox for rank in self.group.ranks)
        return everything and not self.group.world.sequences and not bound

    def key(self) -> Hashable:
        """Two states with one key go on alike: times, step numbers and generations are renamed."""
        group, world = self.group, self.group.world
        newest = sorted({s.generation for s in world.sequences.values()})
        names = {generation: n for n, generation in enumerate(newest)}
        sequences = tuple(
            (
                s.id, s.state, s.slots, names[s.generation], s.computed_tokens, s.ending, s.let_go, s.refused,
                max(-1, s.last_step - group.step_number), tuple(sorted(s.unconfirmed)), tuple(sorted(s.lost_on)),
                s.passed_over_ms is not None, s.started,
            )
            for s in world.sequences.values()
        )  # fmt: skip
        ranks = tuple(
            (
                rank.connected,
                tuple(sorted((slot, owner[1], names.get(owner[0], -1)) for slot, owner in rank.bound.items())),
                tuple(
                    (tuple((o.slot, names.get(o.generation, -1)) for o in orders.releases),
                     tuple((o.slot, names.get(o.generation, -1)) for o in orders.binds))
                    for orders in rank.inbox
                ),
            )
            for rank in group.ranks
        )  # fmt: skip
        picture = (tuple(world.mirror._busy), world.ranks.pending_count)
        return (
            sequences,
            ranks,
            picture,
            self.submitted,
            tuple(sorted(self.cancelled)),
            self.falls,
            self.restarts,
        )

    def after(self, move: Callable[[State], None]) -> State:
        """A copy in which the move has happened."""
        self.group.log.clear()
        self.group.spans.clear()
        state = copy.deepcopy(self)
        move(state)
        return state


def _explore(world: WorldOf) -> tuple[dict[Hashable, set[Hashable]], set[Hashable], dict[Hashable, str]]:
    """All states: where each may go, which are over, and one way to each (for a failure's message)."""
    start = State(world)
    edges: dict[Hashable, set[Hashable]] = {}
    over: set[Hashable] = set()
    ways = {start.key(): "start"}
    todo = [start]
    while todo:
        state = todo.pop()
        key = state.key()
        if key in edges:
            continue
        edges[key] = set()
        if state.is_over:
            over.add(key)
        for name, move in state.moves():
            try:
                follower = state.after(move)
            except AssertionError as error:
                raise AssertionError(f"{error} after: {ways[key]} > {name}") from None
            new = follower.key()
            edges[key].add(new)
            if new not in edges:
                ways.setdefault(new, f"{ways[key]} > {name}")
                todo.append(follower)
    return edges, over, ways


def _may_end(edges: dict[Hashable, set[Hashable]], over: set[Hashable]) -> set[Hashable]:
    """Every state from which one that is over can be reached."""
    before: dict[Hashable, list[Hashable]] = {}
    for key, followers in edges.items():
        for follower in followers:
            before.setdefault(follower, []).append(key)
    found, todo = set(over), list(over)
    while todo:
        for key in before.get(todo.pop(), ()):
            if key not in found:
                found.add(key)
                todo.append(key)
    return found


@pytest.mark.timeout(3600 if os.environ.get("STATEROOM_SOAK") else 120)
@pytest.mark.parametrize("name", WORLDS)
def test_every_reachable_state_is_sound_and_can_end(name: str) -> None:
    world = WORLDS[name]
    edges, over, ways = _explore(world)
    print(f"{name}: {len(edges)} states, {sum(map(len, edges.values()))} moves, {len(over)} of them over")
    assert len(edges) >= world.states_min
    assert over
    stuck = set(edges) - _may_end(edges, over)
    assert not stuck, f"{len(stuck)} states can never end, one after: {ways[next(iter(stuck))]}"


def test_the_search_would_find_a_leak() -> None:
    """A planted fault: a rank that forgets to say what came free leaves states that can never end."""
    assert all(HOLDS_SLOT[state] for state in (S.RETIRING, S.LOST, S.BINDING))

    class Deaf(State):
        def __init__(self, world: WorldOf) -> None:
            super().__init__(world)
            for rank in self.group.ranks:
                rank.scrub_held = True  # released rows are never said to be free

        @property
        def is_over(self) -> bool:
            return super().is_over and self.group.world.mirror.grantable_count == self.world.cap

    world = WorldOf(1, 1, (("context", 1), ("context", 1)), cancels=False)
    original, globals()["State"] = State, Deaf
    try:
        edges, over, _ = _explore(world)
    finally:
        globals()["State"] = original
    assert set(edges) - _may_end(edges, over)

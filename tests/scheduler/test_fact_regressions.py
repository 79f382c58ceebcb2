"""Facts that once broke the core: one named regression for each."""

from __future__ import annotations

from scheduler_svc.core.events import DemandChanged, Finished, LetGo, SessionRegistered
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def test_a_demand_that_changes_to_and_from_0_keeps_the_counts() -> None:
    """The harness checks every count after each event."""
    group = CoreGroup(cap=1)
    group.submit("R")
    group.submit("W")
    group.send(DemandChanged("W", 0), completed=0)
    assert group.state("W") is S.CONTEXT
    group.submit("E", demand=0, engine_hold="encoder is busy")
    group.send(DemandChanged("E", 1), completed=0)
    group.send_ready("E")
    assert group.state("E") is S.WAITING
    group.finish("R")
    assert group.state("E") is S.CONTEXT


def test_c2_the_last_word_on_the_last_step_counts() -> None:
    """A is lost and let go after step 3; then its finish names step 5. The slot is held until 5 is done."""
    group = CoreGroup(cap=1)
    group.submit("A")
    group.step()
    group.step()
    group.restart(1)
    generation = group.grants["A"].generation
    group.step(completed=1)
    group.send(LetGo("A", generation, 3), completed=2)
    group.step(completed=2)
    group.step(completed=2)
    group.send(Finished("A", generation, 5), completed=2)
    group.send(completed=3)
    assert group.state("A") is S.RETIRING
    group.send(completed=5)
    assert group.state("A") is None


def test_a09_an_engine_that_plans_its_own_chunks_works_while_nothing_is_told() -> None:
    """A long context of budgets `engine` is no lack of progress."""
    group = CoreGroup(cap=1, start=False, watchdog_steps=3, watchdog_ms=100)
    for rank in group.ranks:
        group.report(rank.number)
    group.handle(SessionRegistered("e0", "engine", True, engine_budgets=True))
    group.listing("e0")
    group.submit("A", prompt=5000)
    group.submit("N")
    for _ in range(6):
        group.step(ms=50)
        group.tick()
    assert group.world.no_progress == ""

"""States kept only as caches (rule A11): counted, given up for a waiter, and for no more than it lacks."""

from __future__ import annotations

from scheduler_svc.core.events import Finished
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _run(group: CoreGroup, *names: str) -> None:
    group.submit(*names)
    group.step()
    group.step()


def _keep(group: CoreGroup, *names: str) -> None:
    done = group.step_number
    for name in names:
        fact = Finished(name, group.grants[name].generation, done, keep_as_cache=True)
        group.send(fact, completed=done)
        assert group.state(name) is S.CACHED


def test_a11_one_waiter_costs_one_cache_however_long_its_executor_takes() -> None:
    """What is asked back already counts as coming: no second cache is given up for the same place."""
    group = CoreGroup(cap=3)
    _run(group, "A", "B", "R")
    _keep(group, "A", "B")
    group.submit("N")
    for _ in range(3):
        group.step()
        group.tick(10)
    assert group.reclaimed == ["A"]
    group.finish("A")
    assert group.state("N") in (S.CONTEXT, S.DECODE)
    assert group.state("B") is S.CACHED


def test_a11_many_waiters_are_made_room_for_at_once() -> None:
    group = CoreGroup(cap=4)
    _run(group, "A", "B", "C", "R")
    _keep(group, "A", "B", "C")
    group.submit("x", "y")
    assert group.reclaimed == ["A", "B"]


def test_a11_a_cache_goes_before_a_resident_of_lower_priority() -> None:
    group = CoreGroup(cap=2, preemption="recompute")
    _run(group, "A", "R")
    _keep(group, "A")
    group.submit("H", priority=5)
    group.step()
    assert group.reclaimed == ["A"]
    assert group.state("R") is S.DECODE
    assert not group.preemptions


def test_d02_a_cache_that_a_rank_lost_is_forgotten_and_not_computed_again() -> None:
    """Once crashed the scheduler: a cached state had no move for a lost rank."""
    group = CoreGroup(cap=2)
    _run(group, "A")
    _keep(group, "A")
    group.restart(1)
    group.step()
    assert group.reclaimed == ["A"]
    assert not group.recompute
    group.finish("A")
    assert group.state("A") is None
    assert [len(rank.bound) for rank in group.ranks] == [0, 0]
    assert group.world.mirror.grantable_count == 2


def test_l20_a_state_that_cannot_be_kept_does_not_stop_its_request() -> None:
    """Optional is optional: the pool is full and somebody waits, so the kept state goes at once."""
    group = CoreGroup(cap=1)
    _run(group, "A")
    group.submit("N")
    _keep(group, "A")
    assert group.reclaimed == ["A"]
    group.finish("A")
    assert group.state("N") is S.CONTEXT
    assert group.explain("A").outcome == "finished"


def test_l21_a_kept_state_is_given_back_once() -> None:
    """The second release of one ownership is stale: counted, and the new owner is not touched."""
    group = CoreGroup(cap=1)
    _run(group, "A")
    _keep(group, "A")
    old = Finished("A", group.grants["A"].generation, group.step_number)
    group.send(old, completed=group.step_number)
    group.submit("N")
    group.send(old, completed=group.step_number)
    assert group.residents == ["N"]
    assert group.world.refused_by_reason["STALE_GENERATION"] == 1

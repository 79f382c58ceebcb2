"""Faults of order from the field: who goes first, who is stopped for whom (A02, A13 to A16, A26)."""

from __future__ import annotations

import pytest

from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _run(group: CoreGroup, *names: str) -> None:
    """Residents that decode."""
    group.submit(*names)
    group.step()
    group.step()
    assert all(group.state(name) is S.DECODE for name in names)


def _rounds_until_resident(group: CoreGroup, rounds_max: int) -> int:
    """W needs 2 slots; in each round of 10 ms one resident ends and one arrives."""
    _run(group, *(f"r{n}" for n in range(4)))
    group.submit("W", demand=2)
    rounds = 0
    while group.state("W") is S.WAITING and rounds < rounds_max:
        rounds += 1
        group.now_ms += 10
        group.submit(f"n{rounds}")
        group.finish(group.residents[0])
        group.step()
    return rounds


def test_a02_the_skipped_are_not_starved() -> None:
    """Passed for 8 rounds, then a barrier: in by round 11. With no bound, never."""
    group = CoreGroup(cap=4, starvation_ms=80)
    assert 8 <= _rounds_until_resident(group, 40) <= 11
    assert any(name.startswith("n") for name in group.granted_order)  # others did pass it at first
    assert _rounds_until_resident(CoreGroup(cap=4, starvation_ms=10**9), 40) == 40


def test_a13_a_victim_whose_slot_comes_later_counts_as_coming() -> None:
    """Exactly one victim; H is resident one round later."""
    group = CoreGroup(cap=4, preemption="recompute")
    _run(group, "a", "b", "c", "d")
    group.submit("H", priority=5)
    group.step(completed=group.step_number - 1)
    group.step(completed=group.step_number - 1)
    stopped = [name for name in "abcd" if group.state(name) is S.LOST]
    assert stopped == ["d"]  # the youngest
    group.preempted_let_go("d")
    assert group.state("H") is S.CONTEXT


def test_a14_what_is_freed_for_one_is_not_taken_by_another() -> None:
    """P needs 2; two victims free one after the other; N of lower priority arrives between and waits."""
    group = CoreGroup(cap=3, preemption="recompute")
    _run(group, "V1", "V2", "V3")
    group.submit("P", priority=5, demand=2)
    victims = [name for name in ("V1", "V2", "V3") if group.state(name) is S.LOST]
    assert victims == ["V2", "V3"]
    group.preempted_let_go("V3")
    group.submit("N", priority=1)
    assert (group.state("P"), group.state("N")) == (S.WAITING, S.WAITING)
    assert group.reason("N") is WaitReason.POLICY_ORDER
    group.preempted_let_go("V2")
    assert group.state("P") is S.CONTEXT
    assert group.state("N") is S.WAITING
    assert group.world.sequences["V2"].preemptions_count == 1


@pytest.mark.parametrize("preemption", ["off", "recompute"])
def test_a15_the_higher_priority_goes_first(preemption: str) -> None:
    group = CoreGroup(cap=1, preemption=preemption, aging_ms=0)
    _run(group, "L")
    group.submit("L2", priority=0)
    group.submit("H", priority=3)
    if preemption == "recompute":
        assert group.state("L") is S.LOST
        group.preempted_let_go("L")
    else:
        group.finish("L")
    assert group.state("H") is S.CONTEXT
    assert group.state("L2") is S.WAITING


def test_a15_equal_priority_never_preempts() -> None:
    group = CoreGroup(cap=1, preemption="recompute")
    _run(group, "L")
    group.submit("M")
    assert group.state("L") is S.DECODE
    assert group.reason("M") is WaitReason.RESIDENCY_CAP


@pytest.mark.parametrize("aging_ms", [0, 60_000])
def test_a16_the_preempted_goes_before_the_unstarted_of_its_priority(aging_ms: int) -> None:
    group = CoreGroup(cap=1, preemption="recompute", aging_ms=aging_ms)
    group.submit("Y", engine_hold="not yet")  # arrived first, never started
    _run(group, "X")
    group.submit("H", priority=3)
    group.preempted_let_go("X")
    group.send_ready("Y")
    group.step()
    group.finish("H")
    assert group.state("X") is S.CONTEXT
    assert group.state("Y") is S.WAITING


def test_a16_nobody_is_the_victim_more_than_the_limit() -> None:
    group = CoreGroup(cap=1, preemption="recompute", preemptions_max=1)
    _run(group, "X")
    group.submit("H1", priority=3)
    group.preempted_let_go("X")
    group.step()
    group.finish("H1")
    group.step()
    group.submit("H2", priority=3)
    assert group.state("X") is not S.LOST
    assert group.reason("H2") is WaitReason.RESIDENCY_CAP


def test_a26_a_deferred_one_holds_back_no_other() -> None:
    """A needs 2 slots and is deferred; B fits and starts, whatever A is."""
    group = CoreGroup(cap=2)
    _run(group, "R")
    group.submit("A", demand=2)
    group.submit("B")
    assert group.state("B") is S.CONTEXT
    assert group.reason("A") is WaitReason.RESIDENCY_CAP

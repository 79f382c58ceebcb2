"""Lifecycle faults from the field, as far as the scheduler decides them (scenarios L01 ... L22).

L02, L04, L08, L09, L18, L19 stand in test_slot_scenarios.py, L20 and L21 in test_cached_states.py; their
memory's half in tests/cache_svc and tests/attach.

Left out of all A, L and D scenarios, each for the rule that replaces it:
    A17  a batching delay with no bound   A4: no policy here delays what fits
    L17  padding advanced the state       C6: the pool writes no states, kernels are the engine's
    D10  other TP on the other side       A11: transfers are the executor's, here they start, end or fail
    D13  connectors without hybrid        a wish about other systems, no behaviour of ours
"""

from __future__ import annotations

import pytest

from scheduler_svc.core.events import Finished
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _free(group: CoreGroup) -> list[int]:
    return [group.world.mirror.grantable_count, *(len(rank.bound) for rank in group.ranks)]


def test_l01_a_slot_taken_before_the_start_comes_back_each_way() -> None:
    """Cancelled, expired, refused: a thousand times, no drift."""
    group = CoreGroup(cap=2, auto=False, wait_ms_max=1_000)
    before = _free(group)
    for n in range(1000):
        name = f"q{n}"
        group.submit(name)
        match n % 3:
            case 0:
                group.cancel(name)
            case 1:
                group.ranks[0].refuse_binds = 1
                group.deliver(0)
                group.deliver(1)
                group.cancel(name)
            case 2:
                group.cancel_from_outside(name)
        for rank in (0, 1):
            group.deliver(rank)
        assert group.state(name) is None
        assert _free(group) == before


def test_l03_all_slots_of_a_sequence_come_back_whatever_ends_it() -> None:
    group = CoreGroup(cap=6)
    for ending in ("finish", "cancel", "expire"):
        group.submit(ending, demand=3)
        assert len(group.grants[ending].slots) == 3
        group.step()
        if ending == "finish":
            group.finish(ending)
        else:
            group.cancel(ending)
        assert _free(group) == [6, 0, 0]
        assert group.world.held_slots == 0


def test_l05_a_recompute_starts_at_0_under_a_new_name_and_a_kept_state_goes_on() -> None:
    group = CoreGroup(cap=1, preemption="suspend")
    group.submit("X", prompt=16)
    group.step()
    group.step()
    first = group.grants["X"].generation
    group.submit("H", priority=2)
    group.preempted_let_go("X", state_kept=True)
    assert group.state("X") is S.SUSPENDED_HOST
    group.finish("H")
    kept = group.grants["X"]
    assert (kept.computed_tokens, group.state("X")) == (16, S.DECODE)
    assert kept.generation > first
    group.submit("H2", priority=2)
    group.preempted_let_go("X")
    group.finish("H2")
    assert (group.grants["X"].computed_tokens, group.state("X")) == (0, S.CONTEXT)
    tell = group.step()
    assert [(c.sequence_id, c.start) for c in tell.decisions.chunks] == [("X", 0)]


def test_l07_a_transferred_state_is_not_cleared_by_the_scheduler() -> None:
    """The slot was zero before its grant; between grant and transfer nobody is told to clear it (C2)."""
    group = CoreGroup(cap=1)
    group.submit("D", kind="generation_init")
    sent = len(group.log)
    group.transfer("D", "started")
    group.transfer("D", "completed")
    assert not [e for e in group.log[sent:] if type(e).__name__ == "Orders"]
    assert group.step().decode_count == 1


def test_l11_a_finished_slot_with_a_new_owner_is_not_touched_by_the_old_one() -> None:
    group = CoreGroup(cap=1)
    group.submit("X")
    group.step()
    group.submit("Y")
    old = group.grants["X"].generation
    group.finish("X")
    assert group.grants["Y"].slots == group.grants["X"].slots
    group.send(Finished("X", old, 1), Finished("Y", old, 1), completed=1)  # late, and under a stale name
    assert group.residents == ["Y"]
    assert group.world.refused_by_reason["STALE_GENERATION"] == 2


@pytest.mark.parametrize(
    "state", ["waiting", "binding", "context", "decode", "suspended", "init", "transfer", "sending", "lost"]
)
def test_l13_a_cancel_finds_a_sequence_in_every_state(state: str) -> None:
    """One table of all ids: no state misses it, and everything comes back."""
    group = CoreGroup(cap=1, max_step_tokens=32, max_chunk_tokens=32)
    if state == "waiting":
        group.submit("holder")
    if state == "binding":
        group.auto = False
    kind = {"init": "generation_init", "transfer": "generation_init", "sending": "context_only"}.get(
        state, "context"
    )
    group.submit("X", kind=kind, prompt=64 if state == "context" else 16)
    if state in ("context", "decode", "suspended", "sending", "lost"):
        group.step()
    if state == "suspended":
        group.suspend("X")
    if state == "transfer":
        group.transfer("X", "started")
    if state == "lost":
        group.restart(1)
    group.cancel("X")
    if state == "binding":
        group.deliver(0)
        group.deliver(1)
    if state in ("transfer", "sending"):
        assert group.state("X") is not None  # until the transfer is over (scenario D03)
        group.transfer("X", "failed")
    if state == "lost":
        group.let_go("X")
    group.step()
    group.step()
    assert group.state("X") is None
    assert group.explain("X").outcome == "cancelled"
    assert [len(rank.bound) for rank in group.ranks] == ([1, 1] if state == "waiting" else [0, 0])


def test_l15_the_first_end_counts() -> None:
    group = CoreGroup(cap=2)
    group.submit("A", "B")
    group.step()
    group.step(completed=0)
    group.finish("A", last_step=9)
    for _ in range(3):
        group.cancel("A")
    for _ in range(3):
        group.cancel("B")
    group.finish("B")
    group.step(completed=group.step_number)
    for _ in range(9):
        group.step()
    outcomes = {name: group.explain(name).outcome for name in "AB"}
    assert outcomes == {"A": "finished", "B": "cancelled"}
    assert _free(group) == [2, 0, 0]


def test_l16_each_sequence_keeps_its_own_slot_through_shuffles() -> None:
    group = CoreGroup(cap=3)
    group.submit("A", "B", "C")
    group.step()
    slots = {name: group.grants[name].slots for name in "ABC"}
    for turn in range(20):
        name = "ABC"[turn % 3]
        group.suspend(name)
        group.step()
        group.suspend(name, suspended=False)
        group.step()
        assert {n: group.world.sequences[n].slots for n in "ABC"} == slots


def test_l10_slot_numbers_are_plain_and_stay() -> None:
    group = CoreGroup(cap=3)
    group.submit("a", "b")
    kept = group.grants["a"].slots
    group.finish("b")
    group.submit("c")
    assert group.grants["a"].slots == kept == (1,)
    assert all(type(slot) is int for slot in group.grants["c"].slots)


def test_l22_a_lost_count_is_found_and_ends_nothing() -> None:
    from scheduler_svc.core.integrity import check_integrity

    group = CoreGroup(cap=3)
    group.submit("a", engine_hold="later")
    group.submit("b", kind="generation_init")
    group.submit("c")
    assert check_integrity(group.world) == []
    group.world.held_slots -= 1
    assert check_integrity(group.world) == ["2 slots are held and 1 are counted"]
    group.world.held_slots += 1


def test_x03_a_silent_resident_is_never_reaped() -> None:
    """20 minutes without a word about it: still counted (rule C4)."""
    group = CoreGroup(cap=1, wait_ms_max=10_000)
    group.submit("A")
    group.step()
    for _ in range(1200):
        group.tick(1_000)
    assert group.residents == ["A"]


def test_p07_after_a_storm_a_probe_is_resident_at_once() -> None:
    group = CoreGroup(cap=4)
    names = [f"s{n}" for n in range(200)]
    group.submit(*names)
    group.cancel(*names)
    group.step()
    group.submit("probe")
    assert group.state("probe") is S.CONTEXT

"""Admission faults from the field (scenarios A02 ... A27), each as the small story of its id.

A02, A13 to A16, A26 stand in test_order_scenarios.py, A18 in test_step_budget.py; what is left out is in
the table of test_lifecycle_scenarios.py.
"""

from __future__ import annotations

from scheduler_svc.core.events import Finished
from stateroom.residency.answer import Bounded
from stateroom.residency.reasons import ErrorReason, WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _run(group: CoreGroup, *names: str) -> None:
    """Residents that decode."""
    group.submit(*names)
    group.step()
    group.step()
    assert all(group.state(name) is S.DECODE for name in names)


def test_a04_a_spent_budget_is_looked_at_again_each_round() -> None:
    """A, B, C are chunked over 3 rounds, D arrives while they take all tokens: no finish is needed."""
    group = CoreGroup(cap=4, max_step_tokens=48, max_chunk_tokens=16)
    group.submit("A", "B", "C", prompt=48)
    group.step()
    group.submit("D")
    assert group.reason("D") is WaitReason.TOKEN_BUDGET
    states = []
    for _ in range(4):
        group.step()
        states.append(group.state("D"))
    assert S.CONTEXT in states or S.DECODE in states
    assert len(group.residents) == 4


def test_a07_residents_that_are_idle_count() -> None:
    group = CoreGroup(cap=2)
    _run(group, "A", "B")
    group.suspend("A")
    group.submit("D")
    assert group.reason("D") is WaitReason.RESIDENCY_CAP


def test_a08_waiters_that_hold_nothing_do_not_count() -> None:
    """1 resident, 10 that the engine holds back: 3 more are admitted."""
    group = CoreGroup(cap=4)
    _run(group, "R")
    group.submit(*(f"d{n}" for n in range(10)), engine_hold="grammar is compiled")
    group.submit("x", "y", "z")
    assert group.residents == ["R", "x", "y", "z"]
    assert group.reason("d0") is WaitReason.ENGINE


def test_a09_a_hundred_submissions_never_overrun_a_rank() -> None:
    group = CoreGroup(cap=8, max_step_tokens=10_000)
    group.submit(*(f"q{n}" for n in range(100)))
    assert [rank.most_bound for rank in group.ranks] == [8, 8]
    assert len(group.waiting) == 92
    assert not group.world.refused_by_reason


def test_a10_a_refused_bind_leaves_nothing_behind() -> None:
    """Rank 1 refuses after rank 0 bound it, three times; then it runs from position 0 in its place."""
    group = CoreGroup(cap=2)
    group.ranks[1].refuse_binds = 3
    group.submit("A")
    for rank in group.ranks:
        assert len(rank.bound) == 1
    assert group.ranks[1].refuse_binds == 0
    assert group.world.refused_by_reason["SLOT_NOT_FREE"] == 3
    tell = group.step()
    assert [(c.sequence_id, c.start) for c in tell.decisions.chunks] == [("A", 0)]
    group.finish("A")
    assert [len(rank.bound) for rank in group.ranks] == [0, 0]
    assert group.world.mirror.grantable_count == 2


def test_a11_all_suspended_is_named_and_ends_with_a_resume() -> None:
    """Three suspended with slots, nobody decodes: N does not enter, the watchdog says so (rule A9)."""
    group = CoreGroup(cap=3, watchdog_steps=3, watchdog_ms=100)
    _run(group, "A", "B", "C")
    for name in "ABC":
        group.suspend(name)
    group.submit("N")
    for _ in range(4):
        group.step(ms=50)
    group.tick()
    assert "3 of them are suspended" in group.world.no_progress
    group.send(*(), completed=group.step_number)
    group.suspend("A", suspended=False)
    assert group.step().decode_count == 1
    assert group.world.no_progress == ""
    assert group.state("N") is S.WAITING


def test_a12_a_transfer_that_will_free_room_is_no_deadlock() -> None:
    group = CoreGroup(cap=2, watchdog_steps=3, watchdog_ms=100)
    group.submit("X", "Y", kind="generation_init")
    group.transfer("X", "started")
    group.transfer("Y", "started")
    group.submit("N")
    for _ in range(1000):
        group.step(ms=10)
    group.tick()
    assert group.world.no_progress == ""
    group.transfer("X", "completed")
    group.finish("X")
    assert group.state("N") is S.CONTEXT


def test_a19_no_budget_parks_a_resident_without_a_word_to_the_ranks() -> None:
    group = CoreGroup(cap=3, max_step_tokens=16, chunk_unit_tokens=16, max_chunk_tokens=16)
    group.submit("A", prompt=48)
    group.step()
    group.submit("B", prompt=48)
    group.step()
    orders = sum(type(effect).__name__ == "Orders" for effect in group.log)
    group.step()
    assert sum(type(effect).__name__ == "Orders" for effect in group.log) == orders


def test_a20_the_gate_is_the_full_footprint() -> None:
    """Pages for 4 full sequences: the 5th waits though its first chunk would fit; nobody is preempted."""
    group = CoreGroup(cap=16, kv_full_length=True, max_step_tokens=4096)
    group.report_kv(page_tokens=16, total=36, free=36)
    group.submit(*(f"q{n}" for n in range(5)), prompt=64, output=79)
    assert len(group.residents) == 4
    assert group.reason("q4") is WaitReason.KV_PAGES
    for _ in range(20):
        group.step()
    assert not group.preemptions
    group.finish("q0")
    assert group.state("q4") is S.CONTEXT


def test_a21_a_long_prompt_stops_neither_decodes_nor_short_ones() -> None:
    group = CoreGroup(cap=4, max_step_tokens=8, chunk_unit_tokens=1, max_chunk_tokens=4)
    group.submit("G", prompt=2, output=1000)
    group.step()
    group.submit("A", prompt=400)
    group.step()
    group.submit("S", prompt=1)
    seen = []
    for _ in range(2):
        tell = group.step()
        assert tell.decode_count >= 1
        seen += [chunk.sequence_id for chunk in tell.decisions.chunks]
    assert "S" in seen
    assert "A" in seen


def test_a22_reserved_rows_cover_padding_and_never_count() -> None:
    group = CoreGroup(cap=1)
    group.submit("D", kind="generation_init")
    assert group.state("D") is S.GENERATION_INIT
    assert group.grants["D"].slots == (1,)  # row 0 is for padding


def test_a23_a_slot_is_reused_after_the_fence_and_not_before() -> None:
    """Overlap: A ends in round n with a step in flight; N is admitted at n + 1."""
    group = CoreGroup(cap=2)
    _run(group, "A", "B")
    group.submit("N")
    group.step(completed=group.step_number)  # the executor runs one step ahead
    last = group.step_number
    group.send(Finished("A", group.grants["A"].generation, last), completed=last - 1)
    assert (group.state("A"), group.state("N")) == (S.RETIRING, S.WAITING)
    group.step(completed=last)
    assert group.state("N") is S.CONTEXT
    assert group.grants["N"].slots == (1,)


def test_a24_the_queue_is_bounded_and_says_when_to_come_back() -> None:
    group = CoreGroup(cap=1, waiting_max=2, wait_ms_max=30_000)
    group.submit("a", "b", "c", "d")
    assert group.rejected["d"].reason is ErrorReason.QUEUE_FULL
    assert group.rejected["d"].retry_after_ms == 1_000
    group.tick(30_001)
    assert {name: group.rejected[name].reason for name in "bc"} == dict.fromkeys(
        "bc", ErrorReason.WAIT_EXPIRED
    )
    assert group.residents == ["a"]


def test_a25_a_lowered_cap_ends_nobody_and_holds_back() -> None:
    group = CoreGroup(cap=8)
    _run(group, *(f"r{n}" for n in range(6)))
    group.ranks[0].answer = Bounded(3)
    group.report(0)
    group.submit("N")
    assert len(group.residents) == 6
    for count in (5, 4, 3):
        group.finish(group.residents[0])
        assert len(group.residents) == count
        assert group.state("N") is S.WAITING
    group.finish(group.residents[0])
    assert group.state("N") is S.CONTEXT


def test_a27_a_cancel_while_a_rank_binds_ends_once_and_frees_all() -> None:
    group = CoreGroup(cap=1, auto=False)
    group.submit("X")
    group.deliver(0)
    assert group.state("X") is S.BINDING
    group.cancel("X")
    group.deliver(1)
    group.deliver(0)
    assert group.state("X") is None
    assert [len(rank.bound) for rank in group.ranks] == [0, 0]
    ended = [e for e in group.spans if type(e).__name__ == "AdmissionEnded"]
    assert [e.outcome for e in ended] == ["cancelled"]
    assert group.explain("X").outcome == "cancelled"

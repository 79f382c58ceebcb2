"""Disaggregation faults from the field (scenarios D03 ... D12; D01 stands with the origin's regressions,
what is left out in the table of test_lifecycle_scenarios.py)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.events import TransferReported
from stateroom.residency.reasons import ErrorReason, WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _transferring(group: CoreGroup, *names: str) -> None:
    group.submit(*names, kind="generation_init")
    for name in names:
        group.transfer(name, "started")
        assert group.state(name) is S.TRANSFER_IN


@pytest.mark.parametrize("end", ["completed", "failed"])
def test_d03_a_cancel_in_mid_transfer_frees_when_the_transfer_is_over(end: str) -> None:
    group = CoreGroup(cap=1)
    _transferring(group, "D")
    group.submit("N")
    group.cancel("D")
    assert group.step().decode_count == 0
    assert group.state("N") is S.WAITING  # the slot is not handed out: someone may write
    group.transfer("D", end)
    group.step()
    group.step()
    assert group.state("N") in (S.CONTEXT, S.DECODE)
    assert group.explain("D").outcome == "cancelled"


def test_d03_no_end_ever_frees_the_name_first_and_the_memory_later() -> None:
    group = CoreGroup(cap=1, transfer_ms_max=1_000, transfer_memory_ms_max=5_000)
    _transferring(group, "D")
    group.submit("N")
    group.tick(1_001)
    assert group.explain("D").outcome == "expired"
    assert group.state("N") is S.WAITING  # the memory is held on
    group.submit("D", kind="generation_init")  # the name may be used again
    assert group.state("D") is S.WAITING
    group.tick(5_001)
    group.step()
    group.step()
    assert group.state("N") in (S.CONTEXT, S.DECODE)
    assert [len(rank.bound) for rank in group.ranks] == [1, 1]


def test_d05_a_transfer_that_fails_then_succeeds_is_failed_and_released_once() -> None:
    group = CoreGroup(cap=2)
    _transferring(group, "D")
    generation = group.grants["D"].generation
    group.transfer("D", "failed")
    group.send(TransferReported("D", generation, "completed"), completed=group.step_number)
    group.step()
    group.step()
    assert group.explain("D").outcome == "failed"
    assert group.world.mirror.grantable_count == 2
    assert sum(len(e.releases) for e in group.log if type(e).__name__ == "Orders") == 2  # one a rank


def test_d06_a_refused_init_is_told_at_once() -> None:
    """So that the executor can tell the producer, which holds a slot for it."""
    group = CoreGroup(cap=1, waiting_max=1)
    group.submit("A", "B", kind="generation_init")
    group.submit("X", kind="generation_init")
    assert group.rejected["X"].reason is ErrorReason.QUEUE_FULL


def test_d07_a_stale_ownership_is_refused() -> None:
    group = CoreGroup(cap=1)
    _transferring(group, "D")
    old = group.grants["D"].generation
    group.transfer("D", "failed")
    group.step()
    group.submit("D", kind="generation_init")
    assert group.grants["D"].generation > old
    group.send(TransferReported("D", old, "completed"), completed=group.step_number)
    assert group.state("D") is S.GENERATION_INIT
    assert group.world.refused_by_reason["STALE_GENERATION"] == 1


def test_d08_a_late_signal_after_the_memory_limit_is_nothing() -> None:
    group = CoreGroup(cap=1, transfer_ms_max=1_000, transfer_memory_ms_max=1_000)
    _transferring(group, "D")
    generation = group.grants["D"].generation
    group.cancel("D")
    group.tick(1_001)
    group.tick(1_001)
    group.step()
    group.step()
    assert group.world.held_slots == 0
    group.send(TransferReported("D", generation, "completed"), completed=group.step_number)
    assert group.world.mirror.grantable_count == 1


def test_d09_a_cancel_after_finished_and_held_for_the_peer() -> None:
    group = CoreGroup(cap=1)
    group.submit("P", kind="context_only")
    group.step()
    assert group.state("P") is S.TRANSFER_OUT
    group.cancel("P")
    group.transfer("P", "completed")
    group.step()
    group.step()
    assert group.explain("P").outcome == "cancelled"
    assert group.world.mirror.grantable_count == 1


def test_d11_grants_name_slots_and_nothing_else() -> None:
    group = CoreGroup(cap=4)
    group.submit("a")
    group.report_kv(page_tokens=16, total=100, free=91)
    group.submit("page9", kind="generation_init")
    assert group.grants["page9"].slots == (2,)


def test_d12_no_room_is_known_before_the_producer_starts() -> None:
    """Reserve first: the init waits and says why, it holds nothing meanwhile."""
    group = CoreGroup(cap=1)
    _transferring(group, "D1")
    group.submit("D2", kind="generation_init")
    assert group.reason("D2") is WaitReason.RESIDENCY_CAP
    assert group.world.held_slots == 1


def test_a10_many_completions_are_all_processed_though_the_head_cannot_start() -> None:
    """Rule A10: one step brings five ends; the head of the queue needs more than is free."""
    group = CoreGroup(cap=6, asked=16)
    _transferring(group, *(f"d{n}" for n in range(5)))
    group.submit("big", demand=6)
    group.send(
        *(TransferReported(f"d{n}", group.grants[f"d{n}"].generation, "completed") for n in range(5)),
        completed=group.step_number,
    )
    assert group.step().decode_count == 5
    assert group.state("big") is S.WAITING


def test_transfers_at_once_are_limited() -> None:
    group = CoreGroup(cap=4, transfers_max=2)
    group.submit("a", "b", "c", kind="generation_init")
    assert group.reason("c") is WaitReason.TRANSFER_LIMIT
    group.transfer("a", "completed")
    assert group.state("c") is S.GENERATION_INIT

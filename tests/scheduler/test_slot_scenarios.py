"""Lifecycle faults that end in a wrong slot, as far as the scheduler decides them (L02 ... L19).

The memory's half stands in tests/cache_svc; here: what is granted, released and named.
"""

from __future__ import annotations

import pytest

from scheduler_svc.core.events import EnginePreempted, Finished
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _finish(group: CoreGroup, name: str, generation: tuple[int, int]) -> None:
    group.send(Finished(name, generation, group.step_number), completed=group.step_number)


def test_l02_an_owner_closes_once_and_a_borrower_never() -> None:
    """Turn T is refused beside session S: S keeps its slot. Its close frees one, a second close nothing."""
    group = CoreGroup(cap=2)
    group.submit("S")
    group.submit("T", demand=3)  # reverted before it held anything
    assert group.residents == ["S"]
    name = group.grants["S"].generation
    _finish(group, "T", name)  # not the owner of this ownership
    assert group.residents == ["S"]
    before = group.world.mirror.grantable_count
    for _ in range(2):
        _finish(group, "S", name)
    assert group.world.mirror.grantable_count == before + 1
    assert group.world.refused_by_reason["STALE_GENERATION"] == 2


def test_l04_nobody_is_granted_a_row_that_one_rank_has_not_zeroed() -> None:
    """Rank 0 is done, rank 1 still zeroes: N waits for SCRUBBING and is told which rank (rule C2)."""
    group = CoreGroup(cap=1)
    group.ranks[1].scrub_held = True
    group.submit("A")
    group.step()
    group.finish("A")
    group.submit("N")
    assert group.reason("N") is WaitReason.SCRUBBING
    assert "rank 1 scrubs 1 slot" in group.explain("N").sentence
    assert [len(rank.bound) for rank in group.ranks] == [0, 0]
    group.scrubbed(1)
    assert group.grants["N"].slots == (1,)


@pytest.mark.parametrize("reserved", [1, 3])
def test_l08_reserved_rows_are_never_granted_however_full_the_group_is(reserved: int) -> None:
    group = CoreGroup(cap=4, start=False)
    for rank in group.ranks:
        rank.reserved_slots = reserved
    group.start()
    for turn in range(3):
        names = [f"t{turn}n{n}" for n in range(4)]
        group.submit(*names, "over")
        slots = sorted(slot for name in names for slot in group.grants[name].slots)
        assert slots == list(range(reserved, reserved + 4))
        group.cancel("over")
        group.finish(*names)


def test_l09_no_handle_ever_says_minus_1_or_a_row_that_does_not_exist() -> None:
    """What was never granted, or no longer is, has no slots; what is has real ones on every rank."""
    group = CoreGroup(cap=3)
    for turn in range(20):
        group.submit(f"q{turn}", demand=turn % 4)
        if turn % 3 == 2:
            group.finish(*list(group.residents)[:2])
        for sequence in group.world.sequences.values():
            held = sequence.id in group.world.residents
            assert len(sequence.slots) == (sequence.demand if held else 0)
            assert all(1 <= slot <= 3 for slot in sequence.slots)


def test_l18_rejected_drafts_change_nothing_but_tokens() -> None:
    """Drafts are charged to the step whether they are accepted or not; the slot and its name stay (C6)."""
    group = CoreGroup(cap=2, max_step_tokens=40, max_chunk_tokens=32, draft_tokens=3)
    group.submit("A", prompt=32)
    group.step()
    held = (group.world.sequences["A"].slots, group.grants["A"].generation)
    group.submit("B", prompt=64)
    group.step()
    for _ in range(3):
        tell = group.step()
        assert tell.decode_count * (1 + 3) + sum(c.tokens for c in tell.decisions.chunks) <= 40
    assert (group.world.sequences["A"].slots, group.grants["A"].generation) == held


def test_l19_a_state_that_one_rank_lost_is_not_resumed_though_others_kept_it() -> None:
    """Kept in the host by the executor, but rank 1 restarted before the let-go: from position 0 (C9)."""
    group = CoreGroup(cap=1, preemption="suspend")
    group.submit("X")
    group.step()
    group.step()
    group.submit("H", priority=2)
    assert group.state("X") is S.LOST
    group.restart(1)
    group.preempted_let_go("X", state_kept=True)
    assert group.state("X") is not S.SUSPENDED_HOST
    group.cancel("H")
    group.step()
    assert group.grants["X"].computed_tokens == 0


def test_l19_a_state_kept_on_all_ranks_is_resumed_where_it_was() -> None:
    group = CoreGroup(cap=1)
    group.submit("X")
    group.step()
    group.step()
    name = group.grants["X"].generation
    kept = EnginePreempted("X", name, group.step_number, state_kept=True)
    group.send(kept, completed=group.step_number)
    assert (group.grants["X"].computed_tokens, group.state("X")) == (16, S.DECODE)
    assert group.grants["X"].generation > name

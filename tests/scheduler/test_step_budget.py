"""Budgets of a step (rule A8) under the rule that residents pass (A1): who gets the last tokens."""

from __future__ import annotations

import pytest

from scheduler_svc.core.settings import GroupSettings, SettingsError
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _a_and_b_beside_a_decode() -> CoreGroup:
    """16 tokens a step in units of 16. A has 48 of its context left, B has 4, and G decodes."""
    group = CoreGroup(cap=4, max_step_tokens=16, max_chunk_tokens=16)
    for name, prompt in (("A", 64), ("B", 20)):
        group.submit(name, prompt=prompt)
        while not group.step().decisions.chunks:
            pass
        group.suspend(name)
    group.submit("G", prompt=2, output=1000)
    while group.state("G") is not S.DECODE:
        group.step()
    group.suspend("A", suspended=False)
    group.suspend("B", suspended=False)
    return group


def test_a01_a_resident_whose_chunk_does_not_fit_ends_the_pass_for_nobody() -> None:
    """15 tokens are left: no unit for A, and B's last 4 tokens run all the same."""
    group = _a_and_b_beside_a_decode()
    tell = group.step()
    assert [(c.sequence_id, c.tokens) for c in tell.decisions.chunks] == [("B", 4)]
    assert group.state("B") is S.DECODE


def test_a18_a_resident_without_tokens_is_named_and_newcomers_stand_behind_it() -> None:
    """A gets no chunk for rounds. It keeps its slot, G and B go on, its story says why, and S does not
    start in the rest that is too small for A: newcomers would keep it small for ever."""
    group = _a_and_b_beside_a_decode()
    group.step()
    group.submit("S", prompt=4)
    for _ in range(3):
        tell = group.step()
        assert (tell.decode_count, tell.decisions.chunks) == (2, [])
    assert group.state("A") is S.CONTEXT
    assert (
        "no chunk of it fits: 2 sequences decode and leave 14 of 16 tokens a step"
        in group.explain("A").sentence
    )
    assert group.reason("S") is WaitReason.TOKEN_BUDGET
    group.finish("G", "B")
    assert [c.sequence_id for c in group.step().decisions.chunks] == ["A"]
    assert "no chunk" not in group.explain("A").sentence
    while group.state("S") is not S.DECODE:
        group.step()


def test_a08_a_last_chunk_with_its_drafts_has_to_fit_in_a_step() -> None:
    """Once accepted: prompts of 14 to 16 tokens waited for ever."""
    with pytest.raises(SettingsError, match="a last chunk with its drafts could never run"):
        GroupSettings(1, 4, max_step_tokens=16, max_chunk_tokens=16, chunk_unit_tokens=16, draft_tokens=3)
    group = CoreGroup(cap=2, max_step_tokens=19, max_chunk_tokens=16, draft_tokens=3)
    group.submit("A", prompt=16)
    group.step()
    group.step()
    assert group.state("A") is S.DECODE


def test_a08_looking_past_residents_is_bounded() -> None:
    """A step costs what it schedules: 20 or 90 residents whose chunk does not fit, it looks past 16."""
    visited = []
    for count in (20, 90):
        group = CoreGroup(cap=100, asked=100, max_step_tokens=16, max_chunk_tokens=16)
        names = [f"c{n}" for n in range(count)]
        for name in names:
            group.submit(name, prompt=64)
            while not group.step().decisions.chunks:
                pass
            group.suspend(name)
        group.submit("G", prompt=2, output=1000)
        while group.state("G") is not S.DECODE:
            group.step()
        for name in names:
            group.suspend(name, suspended=False)
        before = group.world.visited_count
        assert group.step().decisions.chunks == []
        visited.append(group.world.visited_count - before)
    assert visited[0] == visited[1] == 16

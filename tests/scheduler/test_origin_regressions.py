"""The three review faults of the origin (TRT-LLM#17261), each as a named regression, and both sides of
the clamp. Here against the core; tests/services runs the same against real processes."""

from __future__ import annotations

import pytest

from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup


def test_a01_a_capped_first_chunk_does_not_end_the_pass() -> None:
    """Rule A1: cap 1, A between its chunks, N ahead of it in any list: A's chunk runs, N waits."""
    group = CoreGroup(cap=1, max_step_tokens=32, max_chunk_tokens=32)
    group.submit("A", prompt=96)
    group.step()
    group.submit("N", prompt=16)
    tell = group.step()
    assert [(c.sequence_id, c.start, c.tokens) for c in tell.decisions.chunks] == [("A", 32, 32)]
    assert group.reason("N") is WaitReason.RESIDENCY_CAP
    group.step()
    group.finish("A")
    assert group.state("N") is SequenceState.CONTEXT


def test_d01_a_second_disaggregated_init_waits_at_the_same_gate() -> None:
    """Rule A2: cap 1, two inits: one is in, the other waits through transfer, generation and finish."""
    group = CoreGroup(cap=1)
    group.submit("D1", "D2", kind="generation_init")
    assert (group.state("D1"), group.state("D2")) == (SequenceState.GENERATION_INIT, SequenceState.WAITING)
    group.transfer("D1", "started")
    group.step()
    group.transfer("D1", "completed")
    group.step()
    assert group.state("D1") is SequenceState.DECODE
    assert group.reason("D2") is WaitReason.RESIDENCY_CAP
    group.finish("D1")
    assert group.state("D2") is SequenceState.GENERATION_INIT


def test_d01_inits_and_contexts_share_one_cap() -> None:
    group = CoreGroup(cap=2)
    group.submit("D1", "D2", kind="generation_init")
    group.submit("C1")
    assert group.residents == ["D1", "D2"]
    assert group.reason("C1") is WaitReason.RESIDENCY_CAP


def test_b03_every_rank_is_told_the_same_rows() -> None:
    """Rule B3: the rank that affords all keeps a ledger of the cap of the one that does not."""
    from stateroom.residency.answer import Bounded, Unbounded

    group = CoreGroup(cap=None, ranks=2, start=False)
    group.ranks[0].answer, group.ranks[1].answer = Bounded(53), Unbounded()
    group.start()
    assert [rank.rows for rank in group.ranks] == [54, 54]
    assert group.world.agreement.limiting_ranks == (0,)


@pytest.mark.parametrize(
    "kind", ["context", "decode", "suspended", "init", "transfer", "retiring", "sending"]
)
def test_a03_each_kind_of_resident_alone_fills_a_cap_of_1(kind: str) -> None:
    group = CoreGroup(cap=1, max_step_tokens=32, max_chunk_tokens=32)
    _become(group, kind)
    group.submit("N")
    assert group.reason("N") is WaitReason.RESIDENCY_CAP
    assert len(group.residents) == 1


def _become(group: CoreGroup, kind: str) -> None:
    if kind in ("init", "transfer"):
        group.submit("X", kind="generation_init")
        if kind == "transfer":
            group.transfer("X", "started")
        return
    group.submit(
        "X", prompt=64 if kind == "context" else 16, kind="context_only" if kind == "sending" else "context"
    )
    group.step()
    if kind == "suspended":
        group.suspend("X")
    elif kind == "retiring":
        group.step(completed=0)
        group.finish("X", last_step=group.step_number + 1)


def test_a03_residents_are_counted_over_a_mixed_population() -> None:
    """Started between chunks, decode, suspended, disagg init, in transfer, retiring: all at once."""
    group = CoreGroup(cap=6, asked=16, max_step_tokens=64, max_chunk_tokens=16)
    group.submit("decode", "suspended", "retiring")
    group.step()
    group.submit("context", prompt=64)
    group.submit("init", "transfer", kind="generation_init")
    group.step()
    group.transfer("transfer", "started")
    group.suspend("suspended")
    group.finish("retiring", last_step=99)
    group.submit("next")
    s = SequenceState
    assert group.residents_by_state() == {
        s.CONTEXT: 1, s.DECODE: 1, s.SUSPENDED: 1, s.GENERATION_INIT: 1, s.TRANSFER_IN: 1, s.RETIRING: 1,
    }  # fmt: skip
    assert len(group.residents) == 6
    assert group.reason("next") is WaitReason.RESIDENCY_CAP
    assert group.step().decode_count == 1


def test_b01_unbounded_admits_all_that_was_asked() -> None:
    group = CoreGroup(cap=None, asked=512, max_step_tokens=512 * 16)
    group.submit(*(f"q{n}" for n in range(513)))
    assert len(group.residents) == 512
    assert group.reason("q512") is WaitReason.BATCH_LIMIT


def test_s01_512_asked_339_fit() -> None:
    """The origin's numbers: 339 resident, 173 waiting with RESIDENCY_CAP, then all finish."""
    group = CoreGroup(cap=339, ranks=1, asked=512, max_step_tokens=512 * 16)
    group.submit(*(f"q{n}" for n in range(512)))
    assert (len(group.residents), len(group.waiting)) == (339, 173)
    assert {group.reason(name) for name in group.waiting} == {WaitReason.RESIDENCY_CAP}
    done: set[str] = set()
    while len(done) < 512:
        group.step()
        ended = [name for name in group.residents if name not in done]
        group.finish(*ended)
        done.update(ended)
    assert not group.residents
    assert not group.waiting
    assert group.ranks[0].most_bound == 339

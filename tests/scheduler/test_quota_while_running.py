"""The cap follows the ranks' quotas while sequences run (rules B3, B7, B8), in the core, order by order."""

from __future__ import annotations

import pytest

from scheduler_svc.core.effects import CommitAgreement
from scheduler_svc.core.explain import describe
from stateroom.residency.answer import Answer, Bounded, Unbounded
from stateroom.residency.reasons import ErrorReason, WaitReason
from stateroom.residency.states import SequenceState as S
from tests.scheduler.core_group import CoreGroup


def _quota(group: CoreGroup, number: int, answer: Answer) -> None:
    """A rank's quota changes, and so its answer."""
    group.ranks[number].answer = answer
    group.report(number)


def _told(group: CoreGroup) -> list[tuple[int, int]]:
    """(rank, seats) of every agreement told so far."""
    return [(e.rank, e.agreement.seats) for e in group.log if isinstance(e, CommitAgreement)]


def test_b08_a_rise_is_granted_when_the_last_rank_has_confirmed_it() -> None:
    """Binds overtook the agreement once, on another call: the ranks refused them, 16 for 8 rises (measured)."""
    group = CoreGroup(cap=4)
    _quota(group, 0, Bounded(2))
    group.submit("a", "b", "c")
    assert len(group.residents) == 2
    for rank in group.ranks:
        rank.commits_held = True
    _quota(group, 0, Bounded(4))
    group.tick()
    assert group.reason("c") is WaitReason.RESIDENCY_CAP
    group.deliver_commits(0)
    assert group.reason("c") is WaitReason.RESIDENCY_CAP
    group.deliver_commits(1)
    assert group.state("c") is S.CONTEXT
    assert not group.world.refused_by_reason


def test_b08_a_fall_holds_at_once() -> None:
    group = CoreGroup(cap=4)
    for rank in group.ranks:
        rank.commits_held = True
    _quota(group, 1, Bounded(1))
    group.submit("a", "b")
    assert group.residents == ["a"]
    for number in (0, 1):
        group.deliver_commits(number)
    assert [rank.seats for rank in group.ranks] == [1, 1]


def test_b08_a_rise_beyond_the_rows_stays_at_them_and_names_a_restart() -> None:
    group = CoreGroup(cap=4)
    _quota(group, 0, Unbounded())
    assert group.world.seats == 4  # limited by rank 1 still
    _quota(group, 1, Bounded(9))
    assert group.world.seats == 4
    assert describe(group.world).sentence == (
        "4 of 64 sequences asked for fit, limited by ranks 0-1. The ranks now afford 9 seats and the pools were "
        "built with 5 rows (1 reserved): 4 seats stay; restart the group to get 9."
    )


@pytest.mark.parametrize("answer", [Bounded(9), Unbounded()])
def test_d03_a_new_scheduler_agrees_within_the_rows_that_stand(answer: Answer) -> None:
    """It did not know of them: the ranks refused its agreement for ever, and the group was pending for ever."""
    old = CoreGroup(cap=4)
    old.submit("a", "b", "c")
    new = CoreGroup(cap=4, start=False)
    new.world.term = 2
    new.ranks = old.ranks
    for rank in new.ranks:
        rank.answer = answer  # the quota was raised meanwhile
        new.report(rank.number)
    assert (new.world.seats, [rank.rows for rank in new.ranks]) == (4, [5, 5])
    assert not new.world.ranks.pending_count


def test_b08_one_rank_that_restarts_builds_no_more_than_the_others_have() -> None:
    group = CoreGroup(cap=4)
    for rank in group.ranks:
        rank.answer = Bounded(9)
    group.restart(0)
    assert [rank.rows for rank in group.ranks] == [5, 5]
    for rank in group.ranks:  # all of them together
        group.lose(rank.number)
        rank.restart()
    for rank in group.ranks:
        group.report(rank.number)
    assert [rank.rows for rank in group.ranks] == [10, 10]


def test_b03_an_agreement_that_a_broken_connection_lost_is_told_again() -> None:
    """A rank that never heard of the rise refused every bind beyond its old cap."""
    group = CoreGroup(cap=4)
    _quota(group, 0, Bounded(2))
    group.ranks[1].commits_held = True
    _quota(group, 0, Bounded(4))
    group.ranks[1].commits.clear()  # lost with the connection
    group.lose(1)
    group.ranks[1].commits_held = False
    group.report(1)
    assert [rank.seats for rank in group.ranks] == [4, 4]
    group.submit("a", "b", "c", "d")
    assert len(group.residents) == 4


def test_b03_a_cap_of_0_is_told_to_ranks_whose_rows_stand() -> None:
    group = CoreGroup(cap=3)
    group.submit("a", "b")
    _quota(group, 0, Bounded(0))
    assert [rank.seats for rank in group.ranks] == [0, 0]
    assert group.residents == ["a", "b"]  # rule B8: nobody is ended
    group.submit("late")
    assert group.rejected["late"].reason is ErrorReason.DEMAND_EXCEEDS_CAP
    group.finish("a")
    group.step()
    assert group.residents == ["b"]
    assert [len(rank.bound) for rank in group.ranks] == [1, 1]
    _quota(group, 0, Bounded(3))
    group.submit("c", "d")
    assert group.residents == ["b", "c", "d"]
    assert not group.world.refused_by_reason


def test_b07_at_start_a_cap_of_0_builds_nothing() -> None:
    group = CoreGroup(cap=0)
    assert _told(group) == []
    assert [rank.rows for rank in group.ranks] == [0, 0]
    assert describe(group.world).sentence.startswith("No sequence fits on ranks 0-1")


def test_b02_an_agreement_is_told_once_a_connection() -> None:
    group = CoreGroup(cap=4)
    for _ in range(3):
        group.report(0)
    assert _told(group) == [(0, 4), (1, 4)]
    group.lose(1)
    group.report(1)
    assert _told(group)[2:] == [(1, 4)]


def test_c01_a_fall_that_overtakes_a_bind_takes_the_grant_back() -> None:
    """The rank refuses it (rule B3), its ledger is read again, and the request keeps its place."""
    group = CoreGroup(cap=2, auto=False)
    group.submit("a", "b")
    _quota(group, 0, Bounded(1))
    for number in (0, 1):
        group.deliver(number)
    group.auto = True
    for number in (0, 1):
        group.deliver(number)
    assert group.residents == ["a"]
    assert (group.state("a"), group.state("b")) == (S.CONTEXT, S.WAITING)
    assert [len(rank.bound) for rank in group.ranks] == [1, 1]

"""Faults between scheduler, ranks and executors (scenarios X02 ... X21), as far as the core shows them.

X03 stands in test_lifecycle_scenarios.py, X08 in tests/services/test_scheduler_restart.py.
"""

from __future__ import annotations

import itertools

import pytest

from scheduler_svc.core.core import AdmissionCore
from scheduler_svc.core.effects import Orders
from scheduler_svc.core.events import Arrival, Held, RankReported, SessionRegistered
from stateroom.client.answers import hear
from stateroom.client.book import SessionBook
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState
from stateroom.v1 import scheduler_service_pb2 as pb
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _take_over(group: CoreGroup, *sessions: str) -> None:
    """Another scheduler with a higher term connects to the ranks; orders of the old one are refused."""
    term = group.world.term
    group.core = AdmissionCore(group.settings, term=1)
    group.world = group.core.world
    for rank in group.ranks:
        rank.inbox.clear()
        group.handle(RankReported(rank.number, rank.boot_id, rank.answer, 1, True, term, rank.rows))
    for session in sessions:
        group.handle(SessionRegistered(session, "test", True))


@pytest.mark.parametrize("moment", range(8))
def test_x02_a_cancel_at_any_moment_leaves_no_count_behind(moment: int) -> None:
    """200 requests, each cancelled at this point of its life."""
    group = CoreGroup(cap=2, auto=False)
    for n in range(200):
        name = f"q{n}"
        acts = [
            lambda name=name: group.submit(name),
            lambda: group.deliver(0),
            lambda: group.deliver(1),
            group.step,
            group.step,
            group.tick,
            group.step,
        ]
        for act in acts[:moment]:
            act()
        group.cancel(name)
        for act in (*acts[max(1, moment) :], group.step, lambda: group.deliver(0), lambda: group.deliver(1)):
            act()
        assert name not in group.world.sequences
    assert (group.world.held_slots, group.world.mirror.grantable_count) == (0, 2)
    assert [len(rank.bound) for rank in group.ranks] == [0, 0]
    started = [e.sequence_id for e in group.spans if type(e).__name__ == "AdmissionStarted"]
    ended = [e.sequence_id for e in group.spans if type(e).__name__ == "AdmissionEnded"]
    assert sorted(started) == sorted(ended)


def test_x14_every_rank_gets_the_same_decisions_in_one_order_without_a_gap() -> None:
    group = CoreGroup(cap=3, ranks=3)
    for n in range(12):
        group.submit(f"q{n}", demand=1 + n % 2)
        group.step()
        if n % 3 == 2:
            group.finish(group.residents[0])
    by_rank = [[e for e in group.log if isinstance(e, Orders) and e.rank == rank] for rank in range(3)]
    for orders in by_rank:
        assert [e.sequence_number for e in orders] == list(range(1, len(orders) + 1))
    said = [[(e.releases, e.binds) for e in orders] for orders in by_rank]
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize("confirmed_by", [(), (0,), (1,)])
def test_x16_a_grant_is_not_told_before_every_bind_and_a_take_over_finds_it_waiting(
    confirmed_by: tuple[int, ...],
) -> None:
    """One slot. The old leader's binds are under way or on one rank only; the new one grants q0 once."""
    group = CoreGroup(cap=1, auto=False)
    group.submit("q0", "q1")
    for rank in confirmed_by:
        group.deliver(rank)
    assert group.granted_order == []
    _take_over(group, "e0")
    group.auto = True
    group.listing("e0", (), (group.arrivals["q0"], group.arrivals["q1"]))
    assert group.granted_order == ["q0"]
    assert group.grants["q0"].generation[0] == 2
    for rank in group.ranks:
        assert [owner for _, owner, _ in rank.bound.values()] == ["q0"]


@pytest.mark.parametrize("order", list(itertools.permutations(["deliver 0", "deliver 1", "take over"])))
def test_x17_no_order_of_binds_and_take_over_lets_an_unconfirmed_grant_run(order: tuple[str, ...]) -> None:
    """q0 runs, and so dirties its row, only once both ranks hold it; the new leader knows that row."""
    group = CoreGroup(cap=1, auto=False)
    group.submit("q0")
    for act in order:
        if act == "take over":
            told = "q0" in group.grants
            held = (_held(group, "q0"),) if told else ()
            _take_over(group, "e0")
            group.listing("e0", held, () if told else (group.arrivals["q0"],))
        else:
            group.deliver(int(act[-1]))
    group.auto = True
    for number in (0, 1, 0, 1):
        group.deliver(number)
    group.submit("q1")
    assert group.state("q0") is S.CONTEXT
    assert group.reason("q1") is WaitReason.RESIDENCY_CAP
    assert [[owner for _, owner, _ in rank.bound.values()] for rank in group.ranks] == [["q0"], ["q0"]]


def _held(group: CoreGroup, name: str) -> Held:
    grant = group.grants[name]
    return Held(group.arrivals[name], grant.slots, grant.generation, S.CONTEXT, 0, 0)


def test_x18_a_grant_of_the_old_leader_that_comes_late_is_dropped() -> None:
    """The executor heard term 6; what carries term 5 changes nothing in its book (rule D4)."""
    book = SessionBook("e0")
    book.submit(pb.Arrival(sequence_id="q0", prompt_tokens=16, max_output_tokens=4))
    hear(book, pb.StepResponse(term=6))
    late = pb.StepResponse(term=5)
    late.grants.add(sequence_id="q0").handles.add(slot=1).generation.term = 5
    hear(book, late)
    assert list(book.waiting) == ["q0"]
    assert not book.held


def test_x19_a_rank_that_restarts_between_its_confirmation_and_the_grant() -> None:
    """r0 confirms and restarts, then r1 confirms: nobody was told, q0 keeps its place and is granted once
    the new ledger was heard."""
    group = CoreGroup(cap=1, auto=False)
    group.submit("q0", "q1")
    group.deliver(0)
    group.restart(0)
    group.deliver(1)
    assert group.granted_order == []
    for number in (0, 1, 0, 1):
        group.deliver(number)
    assert group.granted_order == ["q0"]
    assert not group.recompute
    assert [[owner for _, owner, _ in rank.bound.values()] for rank in group.ranks] == [["q0"], ["q0"]]


def test_x20_no_bind_goes_to_a_rank_whose_ledger_was_not_heard_on_this_connection() -> None:
    group = CoreGroup(cap=1)
    group.lose(0)
    rank = group.ranks[0]
    rank.restart()
    before = len(group.log)
    group.submit("q0")
    group.step()
    assert group.reason("q0") is WaitReason.RANK_PENDING
    assert not [e for e in group.log[before:] if isinstance(e, Orders)]
    group.report(0)  # ledger heard, then binds
    assert group.granted_order == ["q0"]


def test_x21_slots_of_an_executor_that_was_not_heard_yet_stay_held() -> None:
    """Two executors; after the take-over only e1 has listed: the free slot is granted, e0's is not."""
    group = CoreGroup(cap=2)
    group.submit("mine")
    mine = _held(group, "mine")
    _take_over(group, "e0", "e1")
    group.listing("e1", (), (Arrival("a", "context", 16, 8), Arrival("b", "context", 16, 8)))
    assert group.state("a") is S.CONTEXT
    assert group.reason("b") is WaitReason.RECOVERING
    group.listing("e0", (mine,))
    assert group.residents == ["a", "mine"]
    assert group.reason("b") is WaitReason.RESIDENCY_CAP

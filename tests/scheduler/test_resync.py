"""A session's whole list against what the scheduler knows (rules D3, D5): held and bound everywhere goes
on, held and not is RECOMPUTE, bound and not held is given back, and nothing is counted twice."""

from __future__ import annotations

from scheduler_svc.core.events import Held, RankReported, SessionRegistered
from stateroom.residency.reasons import WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _held(group: CoreGroup, name: str, state: S = S.DECODE, computed: int = 16, last_step: int = 0) -> Held:
    grant = group.grants[name]
    return Held(group.arrivals[name], grant.slots, grant.generation, state, computed, last_step)


def _busy(cap: int = 3, waiting: tuple[str, ...] = ("w",)) -> CoreGroup:
    """Residents a, b, c that decode, and a waiter."""
    group = CoreGroup(cap=cap)
    group.submit("a", "b", "c")
    group.step()
    group.submit(*waiting)
    return group


def _new_scheduler(group: CoreGroup) -> None:
    """kill -9 of the scheduler: a fresh core of the next term hears the same ranks."""
    from scheduler_svc.core.core import AdmissionCore

    group.core = AdmissionCore(group.settings, term=1)
    group.world = group.core.world
    for rank in group.ranks:
        group.handle(RankReported(rank.number, rank.boot_id, rank.answer, 1, True, 1, rank.rows))


def test_d03_residents_of_a_dead_scheduler_are_held_until_their_session_is_heard() -> None:
    group = _busy()
    _new_scheduler(group)
    assert group.world.term == 2
    assert group.world.mirror.foreign_count == 3
    group.handle(SessionRegistered("e1", "another", False))
    group.listing("e1", waiting=(group.arrival("n"),))
    assert group.reason("n") is WaitReason.RECOVERING  # counted, though nobody claims them yet
    assert [len(rank.bound) for rank in group.ranks] == [3, 3]


def test_d03_held_and_bound_everywhere_goes_on() -> None:
    group = _busy()
    _new_scheduler(group)
    group.handle(SessionRegistered("e0", "test", False))
    kept = tuple(_held(group, name) for name in "abc")
    group.listing("e0", kept, (group.arrivals["w"],))
    assert group.residents == ["a", "b", "c"]
    assert group.reason("w") is WaitReason.RESIDENCY_CAP
    assert group.step().decode_count == 3
    group.finish("a")
    assert group.state("w") is S.CONTEXT
    assert group.grants["w"].generation > kept[2].generation


def test_d03_bound_and_not_held_is_given_back() -> None:
    group = _busy()
    _new_scheduler(group)
    group.handle(SessionRegistered("e0", "test", False))
    group.listing("e0", (_held(group, "a"),), (group.arrivals["w"],))
    assert group.residents == ["a", "w"]
    assert [len(rank.bound) for rank in group.ranks] == [2, 2]
    assert group.world.mirror.foreign_count == 0


def test_d03_held_and_not_bound_on_a_rank_is_computed_again() -> None:
    group = _busy()
    group.ranks[1].restart()
    _new_scheduler(group)
    group.handle(SessionRegistered("e0", "test", False))
    group.listing("e0", tuple(_held(group, name) for name in "abc"))
    assert sorted(group.recompute) == ["a", "b", "c"]
    assert [group.state(name) for name in "abc"] == [S.LOST] * 3
    group.step_number = 0  # as the list said
    for name in "abc":
        group.let_go(name)
    assert [group.grants[name].generation[0] for name in "abc"] == [2, 2, 2]
    assert [len(rank.bound) for rank in group.ranks] == [3, 3]


def test_d03_retiring_and_lost_ones_keep_their_fence() -> None:
    group = _busy(waiting=())
    _new_scheduler(group)
    group.handle(SessionRegistered("e0", "test", False))
    group.listing(
        "e0",
        (
            _held(group, "a", S.RETIRING, last_step=5),
            _held(group, "b", S.LOST, last_step=6),
            _held(group, "c"),
        ),
    )
    assert [group.state(name) for name in "abc"] == [S.RETIRING, S.LOST, S.DECODE]
    group.step_number = 7
    group.step(completed=5)
    assert group.state("a") is None
    assert group.state("b") is S.LOST
    group.step(completed=6)
    assert group.state("b") in (S.CONTEXT, S.BINDING)


def test_d03_a_context_between_chunks_goes_on_where_it_was() -> None:
    group = CoreGroup(cap=1, max_step_tokens=32, max_chunk_tokens=32)
    group.submit("a", prompt=96)
    group.step()
    _new_scheduler(group)
    group.handle(SessionRegistered("e0", "test", False))
    group.listing("e0", (_held(group, "a", S.CONTEXT, computed=32),))
    chunks = group.step().decisions.chunks
    assert [(c.start, c.tokens) for c in chunks] == [(32, 32)]


def test_d05_what_is_not_listed_any_more_is_released() -> None:
    group = _busy()
    group.close_stream()
    group.listing("e0", (_held(group, "a"),))
    assert group.residents == ["a"]
    assert group.state("w") is None
    assert group.explain("w").outcome == "cancelled"
    assert group.explain("b").outcome == "finished"
    assert [len(rank.bound) for rank in group.ranks] == [1, 1]


def test_d05_the_same_list_again_changes_nothing() -> None:
    group = _busy()
    kept = tuple(_held(group, name) for name in "abc")
    for _ in range(3):
        group.close_stream()
        group.listing("e0", kept, (group.arrivals["w"],))
        assert group.residents == ["a", "b", "c"]
        assert group.waiting == ["w"]
    assert group.step().decode_count == 3


def test_a11_a_grant_that_was_never_heard_of_is_given_back_and_keeps_its_place() -> None:
    group = CoreGroup(cap=1)
    group.submit("a", "b")
    group.close_stream()  # the grant of a was lost with the stream
    group.listing("e0", (), (group.arrivals["a"], group.arrivals["b"]))
    assert group.state("a") is S.CONTEXT
    assert group.reason("b") is WaitReason.RESIDENCY_CAP
    assert group.granted_order == ["a", "a"]


def test_d05_a_bind_under_way_is_no_loss_while_its_session_still_waits_for_it() -> None:
    group = CoreGroup(cap=1, auto=False)
    group.submit("a")
    group.close_stream()
    group.listing("e0", (), (group.arrivals["a"],))
    assert group.state("a") is S.BINDING
    group.deliver(0)
    group.deliver(1)
    assert group.state("a") is S.CONTEXT
    group.submit("b")
    group.close_stream()
    group.listing("e0", (_held(group, "a", S.CONTEXT, computed=0),))
    assert group.state("b") is None


def test_d05_a_recompute_that_was_lost_with_the_stream_is_told_again() -> None:
    group = _busy(waiting=())
    group.restart(1)
    group.close_stream()
    group.recompute.clear()
    group.listing("e0", tuple(_held(group, name) for name in "abc"))
    assert sorted(group.recompute) == ["a", "b", "c"]
    group.close_stream()
    group.listing("e0", tuple(_held(group, name, S.LOST, last_step=0) for name in "abc"))
    assert [group.state(name) for name in "abc"] == [S.CONTEXT] * 3

"""A broken stream loses facts and answers; the whole list that follows makes them good (rules D3, D5)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.core import AdmissionCore
from scheduler_svc.core.effects import Tell
from scheduler_svc.core.events import Finished, Held, LetGo, SessionRegistered
from stateroom.client.book import SessionBook
from stateroom.client.held import HeldSequence
from stateroom.residency.answer import Bounded
from stateroom.residency.states import SequenceState
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def _reach(group: CoreGroup, state: SequenceState) -> None:
    """A is in this state; its prompt is 64 tokens where it still has context."""
    init = state in (S.GENERATION_INIT, S.TRANSFER_IN)
    group.submit("A", kind="generation_init" if init else "context", prompt=64 if state is S.CONTEXT else 16)
    if state is S.TRANSFER_IN:
        group.transfer("A", "started")
    elif not init:
        group.step()
    if state is S.SUSPENDED:
        group.suspend("A")
    assert group.state("A") is state


def _claim(group: CoreGroup, name: str, state: SequenceState, computed: int) -> Held:
    grant = group.grants[name]
    return Held(group.arrivals[name], grant.slots, grant.generation, state, computed, group.step_number)


def _take_over(group: CoreGroup, *claims: Held) -> None:
    """Another scheduler leads, hears the ranks and then the session."""
    group.core = AdmissionCore(group.settings, term=2)
    group.world = group.core.world
    for rank in group.ranks:
        group.report(rank.number)
    group.handle(SessionRegistered(group.session, "test", True))
    group.delta_number[group.session] = 0
    group.step_number = 0
    group.listing(group.session, claims)


@pytest.mark.parametrize(
    ("ours", "theirs", "computed"),
    [
        (S.TRANSFER_IN, S.DECODE, 16),  # the transfer's end was lost
        (S.GENERATION_INIT, S.TRANSFER_IN, 0),
        (S.DECODE, S.CONTEXT, 0),  # the answer with its chunk was lost
        (S.DECODE, S.SUSPENDED, 16),
        (S.CONTEXT, S.SUSPENDED, 16),
        (S.SUSPENDED, S.DECODE, 16),
        (S.DECODE, S.CACHED, 16),
        (S.CONTEXT, S.DECODE, 64),
    ],
)
def test_d05_the_list_says_how_far_a_sequence_is(
    ours: SequenceState, theirs: SequenceState, computed: int
) -> None:
    group = CoreGroup(cap=1, max_step_tokens=16, max_chunk_tokens=16)
    _reach(group, ours)
    group.close_stream()
    group.listing("e0", (_claim(group, "A", theirs, computed),))
    assert group.state("A") is theirs
    if theirs is S.CONTEXT:
        assert [c.start for c in group.step().decisions.chunks] == [0]  # planned again


def test_d05_a_state_let_go_while_the_stream_was_down_is_computed_again() -> None:
    group = CoreGroup(cap=1)
    _reach(group, S.DECODE)
    group.close_stream()
    group.listing("e0", (_claim(group, "A", S.LOST, 0),))
    group.step()
    assert group.grants["A"].generation[1] == 2
    assert group.grants["A"].computed_tokens == 0


def test_d05_what_was_not_told_is_told_after_the_list() -> None:
    """A restarted rank to attach, a cache to give up, a cancel, another cap: said into a broken stream.
    Without the first of them the group was pending for ever."""
    group = CoreGroup(cap=3)
    for rank in (0, 1):
        group.attached(rank)
    group.submit("A", "B", "C")
    group.step()
    done = group.step_number
    group.send(Finished("A", group.grants["A"].generation, done, keep_as_cache=True), completed=done)
    group.close_stream()
    group.ranks[0].answer = Bounded(2)
    group.report(0)
    group.cancel_from_outside("B")
    group.restart(1)
    before = len(group.log)
    claims = [_claim(group, "A", S.CACHED, 16), *(_claim(group, n, S.DECODE, 16) for n in "BC")]
    group.listing("e0", tuple(claims))
    tells = [e.decisions for e in group.log[before:] if isinstance(e, Tell)]
    assert [rank for told in tells for rank in told.attach] == [1]
    assert [r.sequence_id for told in tells for r in told.reclaim] == ["A"]
    assert [name for told in tells for name in told.cancelled] == ["B"]
    assert sorted(r.sequence_id for told in tells for r in told.recompute) == ["B", "C"]
    assert [told.agreement.seats for told in tells if told.agreement is not None] == [2]


def test_d03_a_new_scheduler_watches_over_what_it_adopts() -> None:
    """Transfers have their limits, and residents may be stopped for a higher priority."""
    group = CoreGroup(cap=1, transfer_ms_max=1_000)
    _reach(group, S.TRANSFER_IN)
    _take_over(group, _claim(group, "A", S.TRANSFER_IN, 0))
    group.tick(1_001)
    assert group.explain("A").outcome == "expired"

    group = CoreGroup(cap=1, preemption="recompute")
    _reach(group, S.DECODE)
    _take_over(group, _claim(group, "A", S.DECODE, 16))
    group.submit("H", priority=5)
    assert list(group.preemptions) == ["A"]


def test_d03_a_cache_that_a_rank_lost_before_the_take_over_is_forgotten() -> None:
    group = CoreGroup(cap=1)
    _reach(group, S.DECODE)
    group.ranks[1].restart()
    _take_over(group, _claim(group, "A", S.CACHED, 16))
    assert group.reclaimed == ["A"]


def test_d03_a_let_go_that_the_earlier_leader_asked_for_gives_the_slot_back() -> None:
    """The old leader preempted A; the new one adopts it as running, then hears its let-go."""
    group = CoreGroup(cap=1)
    _reach(group, S.DECODE)
    _take_over(group, _claim(group, "A", S.DECODE, 16))
    group.send(LetGo("A", group.grants["A"].generation, 0), completed=0)
    assert group.grants["A"].generation == (2, 2)
    assert group.residents == ["A"]


def test_c2_the_sdk_lists_what_it_has_not_let_go_as_running() -> None:
    """Told RECOMPUTE, stream broken before the let-go: listed as LOST, its slot was freed under a step."""
    book = SessionBook("e0")
    generation = types.Generation(term=1, counter=1)
    handle = types.Handle(slot=1, generation=generation)
    arrival = pb.Arrival(sequence_id="A", prompt_tokens=16, max_output_tokens=4)
    book.held["A"] = HeldSequence(arrival, (handle,), types.SEQUENCE_STATE_LOST)
    assert [h.state for h in book.whole_list().list.held] == [types.SEQUENCE_STATE_CONTEXT]
    book.let_go("A", 3)
    assert [h.state for h in book.whole_list().list.held] == [types.SEQUENCE_STATE_LOST]


def test_d05_the_list_says_whether_the_engine_is_ready_and_how_many_slots_it_needs() -> None:
    """A Ready and a changed demand said into the broken stream: once it waited for ENGINE for ever."""
    group = CoreGroup(cap=2)
    group.submit("A", demand=2, engine_hold="no LoRA slot")
    group.submit("R")
    group.close_stream()
    group.listing("e0", (_claim(group, "R", S.CONTEXT, 0),), (group.arrival("A", demand=1),))
    assert len(group.grants["A"].slots) == 1
    assert group.state("A") is S.CONTEXT


def test_d05_a_finish_of_a_lost_one_that_was_lost_itself_is_in_the_list() -> None:
    """Rank 1 restarts while the executor ends A and the stream breaks: A is over, not computed again."""
    group = CoreGroup(cap=1)
    _reach(group, S.DECODE)
    group.close_stream()
    group.restart(1)
    assert group.state("A") is S.LOST
    group.listing("e0", (_claim(group, "A", S.RETIRING, 16),))
    group.step()
    group.step()
    assert group.explain("A").outcome == "finished"
    assert [len(rank.bound) for rank in group.ranks] == [0, 0]


def test_d03_terms_tell_ownerships_of_one_counter_apart() -> None:
    """(1, 1) of the old leader and (2, 1) of the new one end behind one fence: once a TypeError."""
    group = CoreGroup(cap=2, ranks=1)
    _reach(group, S.DECODE)
    old = _claim(group, "A", S.RETIRING, 16)
    group.ranks[0].restart()  # forgets the counters it had seen
    _take_over(group)
    group.submit("B")
    assert group.grants["B"].generation[1] == old.generation[1]
    group.send(Finished("B", group.grants["B"].generation, 9), completed=0)
    group.close_stream()
    retiring = Held(
        group.arrivals["B"], group.grants["B"].slots, group.grants["B"].generation, S.RETIRING, 0, 9
    )
    again = Held(old.arrival, old.slots, old.generation, S.RETIRING, 16, 9)
    group.listing("e0", (retiring, again))
    assert [group.state(name) for name in "AB"] == [S.RETIRING, S.RETIRING]


def test_d03_the_sdk_says_a_cancel_in_mid_transfer_again() -> None:
    """The list has no word for it, and the transfer's end would have started a decode nobody runs."""
    book = SessionBook("e0")
    handle = types.Handle(slot=1, generation=types.Generation(term=1, counter=1))
    arrival = pb.Arrival(sequence_id="D", prompt_tokens=16, max_output_tokens=4)
    book.held["D"] = HeldSequence(arrival, (handle,), types.SEQUENCE_STATE_TRANSFER_IN)
    book.cancel("D")
    assert list(book.whole_list().cancels) == ["D"]
    book.let_go("D", 0)
    book.request(ask=False, completed_step=0)
    assert not book.waiting  # cancelled: it does not wait again

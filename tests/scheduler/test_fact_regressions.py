"""Facts that once broke the core: one named regression for each."""

from __future__ import annotations

from scheduler_svc.core.effects import HearLedger
from scheduler_svc.core.events import (
    AllStatesVoid,
    DemandChanged,
    EnginePreempted,
    Finished,
    GrantAnswered,
    LetGo,
    SessionRegistered,
)
from stateroom.residency.answer import Bounded
from stateroom.residency.reasons import ErrorReason, WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def test_a_demand_that_changes_to_and_from_0_keeps_the_counts() -> None:
    """The harness checks every count after each event."""
    group = CoreGroup(cap=1)
    group.submit("R")
    group.submit("W")
    group.send(DemandChanged("W", 0), completed=0)
    assert group.state("W") is S.CONTEXT
    group.submit("E", demand=0, engine_hold="encoder is busy")
    group.send(DemandChanged("E", 1), completed=0)
    group.send_ready("E")
    assert group.state("E") is S.WAITING
    group.finish("R")
    assert group.state("E") is S.CONTEXT


def test_a_demand_that_changes_during_a_bind_is_chosen_for_again() -> None:
    group = CoreGroup(cap=3, auto=False)
    group.submit("A", demand=1)
    group.deliver(0)
    group.send(DemandChanged("A", 3), completed=0)
    for number in (0, 1, 0, 1):
        group.deliver(number)
    assert len(group.grants["A"].slots) == 3


def test_c2_the_last_word_on_the_last_step_counts() -> None:
    """A is lost and let go after step 3; then its finish names step 5. The slot is held until 5 is done."""
    group = CoreGroup(cap=1)
    group.submit("A")
    group.step()
    group.step()
    group.restart(1)
    generation = group.grants["A"].generation
    group.step(completed=1)
    group.send(LetGo("A", generation, 3), completed=2)
    group.step(completed=2)
    group.step(completed=2)
    group.send(Finished("A", generation, 5), completed=2)
    group.send(completed=3)
    assert group.state("A") is S.RETIRING
    group.send(completed=5)
    assert group.state("A") is None


def test_a09_an_engine_that_plans_its_own_chunks_works_while_nothing_is_told() -> None:
    """A long context of budgets `engine` is no lack of progress."""
    group = CoreGroup(cap=1, start=False, watchdog_steps=3, watchdog_ms=100)
    for rank in group.ranks:
        group.report(rank.number)
    group.handle(SessionRegistered("e0", "engine", True, engine_budgets=True))
    group.listing("e0")
    group.submit("A", prompt=5000)
    group.submit("N")
    for _ in range(6):
        group.step(ms=50)
        group.tick()
    assert group.world.no_progress == ""


def _decline(group: CoreGroup, name: str) -> None:
    fact = GrantAnswered(name, group.grants[name].generation, "no LoRA slot")
    group.send(fact, completed=group.step_number)


def test_a11_a_decline_that_crosses_planned_chunks_gives_the_slot_back() -> None:
    """The step went out before the grant arrived, so all of A's context is planned. Once ignored: the
    executor had let go and the scheduler counted a decode for ever."""
    for kind in ("context", "context_only"):
        group = CoreGroup(cap=1)
        group.submit("A", kind=kind)
        group.step()
        assert group.state("A") in (S.DECODE, S.TRANSFER_OUT)
        _decline(group, "A")
        assert group.reason("A") is WaitReason.ENGINE
        assert [len(rank.bound) for rank in group.ranks] == [0, 0]
        group.send_ready("A")
        group.step()
        assert group.grants["A"].computed_tokens == 0  # from the start: nothing of it ran
        assert group.state("A") in (S.CONTEXT, S.DECODE, S.TRANSFER_OUT)


def test_a11_a_declined_resume_keeps_its_state_in_the_host() -> None:
    group = CoreGroup(cap=1)
    group.submit("A")
    group.step()
    group.step()
    kept = EnginePreempted("A", group.grants["A"].generation, group.step_number, state_kept=True)
    group.send(kept, completed=group.step_number)
    assert group.state("A") is S.DECODE  # granted again at once
    _decline(group, "A")
    assert (group.state("A"), group.reason("A")) == (S.SUSPENDED_HOST, WaitReason.ENGINE)
    group.send_ready("A")
    assert (group.state("A"), group.grants["A"].computed_tokens) == (S.DECODE, 16)


def test_a06_a_wait_that_ran_out_while_a_rank_was_binding_is_over() -> None:
    """Its limit passes during the bind, then the rank is lost: once it waited without any limit."""
    group = CoreGroup(cap=1, auto=False, wait_ms_max=1_000)
    group.submit("A")
    group.deliver(0)
    group.tick(1_001)
    assert group.state("A") is S.BINDING
    group.lose(1)
    group.tick()
    assert group.rejected["A"].reason is ErrorReason.WAIT_EXPIRED
    assert group.state("A") is None


def test_a15_a_resident_that_was_suspended_may_be_stopped_again_once_it_goes_on() -> None:
    """Looked at while suspended, it was once forgotten among those who may be stopped."""
    group = CoreGroup(cap=1, preemption="recompute")
    group.submit("L")
    group.step()
    group.step()
    group.suspend("L")
    group.submit("H", priority=5)
    group.step()
    assert group.state("L") is S.SUSPENDED
    group.suspend("L", suspended=False)
    assert group.state("L") is S.LOST
    assert list(group.preemptions) == ["L"]


def test_a11_all_states_void_answers_a_preemption_that_was_told() -> None:
    """The executor let everything go with one word; once the scheduler waited for a let-go for ever."""
    group = CoreGroup(cap=1, preemption="recompute")
    group.submit("L")
    group.step()
    group.step()
    group.submit("H", priority=5)
    assert group.state("L") is S.LOST
    group.send(AllStatesVoid(group.step_number), completed=group.step_number)
    assert group.state("H") is S.CONTEXT
    assert group.state("L") is S.WAITING


def test_a11_states_in_host_memory_are_void_with_the_others() -> None:
    """After a weight update a state kept in the host is of the old weights: from position 0."""
    group = CoreGroup(cap=1, preemption="suspend")
    group.submit("L")
    group.step()
    group.step()
    group.submit("H", priority=5)
    group.preempted_let_go("L", state_kept=True)
    assert group.state("L") is S.SUSPENDED_HOST
    group.send(AllStatesVoid(group.step_number), completed=group.step_number)
    assert group.state("L") is S.WAITING
    group.cancel("H")
    group.step()
    assert group.grants["L"].computed_tokens == 0


def test_a05_a_cap_that_fell_during_a_bind_refuses_what_cannot_start_any_more() -> None:
    group = CoreGroup(cap=3, auto=False)
    group.submit("big", demand=3)
    group.deliver(0)
    group.ranks[0].answer = Bounded(1)
    group.report(0)
    group.lose(1)
    assert group.rejected["big"].reason is ErrorReason.DEMAND_EXCEEDS_CAP


def test_d01_a_ledger_is_asked_for_once_a_connection() -> None:
    """The rank comes back while the cap changes: committing asked a second time, that ledger came after
    binds it did not show, and the scheduler crashed."""
    group = CoreGroup(cap=2)
    group.submit("A", engine_hold="later")
    group.lose(1)
    group.ranks[0].answer = Bounded(1)
    group.report(0)
    group.send_ready("A")
    before = len(group.log)
    group.report(1)
    asked = [e for e in group.log[before:] if isinstance(e, HearLedger)]
    assert len(asked) == 1
    assert group.state("A") is S.CONTEXT


def test_d02_a_slot_lost_on_every_rank_may_be_taken_while_its_old_owner_lets_go() -> None:
    """One rank: its new pool is free, the old handle names another boot. The place counts until the let-go."""
    group = CoreGroup(cap=2, ranks=1)
    group.submit("A")
    group.step()
    group.restart(0)
    group.submit("B", "C")
    assert (group.grants["B"].slots, group.state("A")) == ((1,), S.LOST)
    assert group.reason("C") is WaitReason.RESIDENCY_CAP
    group.let_go("A")
    assert group.state("A") is S.CONTEXT
    assert group.grants["A"].slots == (2,)


def test_a11_demand_0_has_no_ownership_to_name() -> None:
    """On the wire a grant without handles carries no generation, so facts about it name none either:
    once its finish was stale and it decoded for ever."""
    group = CoreGroup(cap=1)
    group.submit("e1", "e2", demand=0)
    assert group.grants["e1"].generation == (0, 0)
    group.step()
    for name in ("e1", "e2"):
        group.send(Finished(name, (0, 0), group.step_number + 1), completed=group.step_number)
    assert group.state("e1") is S.RETIRING
    group.step_number += 1
    group.step()
    assert not group.world.sequences
    assert group.world.sessions["e0"].decode_count == 0

"""Grants are answered, facts come late, engines act by themselves (rule A11); budgets, shares, bounds."""

from __future__ import annotations

from scheduler_svc.core.events import (
    AllStatesVoid,
    DemandChanged,
    EnginePreempted,
    Finished,
    GrantAnswered,
    Progressed,
    SessionRegistered,
)
from stateroom.residency.reasons import ErrorReason, WaitReason
from stateroom.residency.states import SequenceState
from tests.scheduler.core_group import CoreGroup

S = SequenceState


def test_a11_a_declined_grant_is_given_back_and_waits_for_the_engine() -> None:
    group = CoreGroup(cap=1)
    group.submit("A", "B")
    group.send(GrantAnswered("A", group.grants["A"].generation, "no LoRA slot"), completed=0)
    assert group.reason("A") is WaitReason.ENGINE
    assert "no LoRA slot" in group.explain("A").sentence
    assert group.state("B") is S.CONTEXT
    group.send_ready("A")
    group.finish("B")
    assert group.state("A") is S.CONTEXT


def test_a11_a_grant_that_crosses_a_cancel_is_given_back_once() -> None:
    group = CoreGroup(cap=1)
    group.submit("A")
    generation = group.grants["A"].generation
    group.cancel("A")  # sent before the grant arrived
    group.send(Finished("A", generation, 0), completed=0)  # the SDK gives the grant back
    assert [len(rank.bound) for rank in group.ranks] == [0, 0]
    assert group.explain("A").outcome == "cancelled"


def test_a11_the_engine_preempts_by_itself() -> None:
    group = CoreGroup(cap=2)
    group.submit("A", "B")
    group.step()
    group.step()
    for name, kept in (("A", False), ("B", True)):
        generation = group.grants[name].generation
        group.send(EnginePreempted(name, generation, group.step_number, kept), completed=group.step_number)
    assert (group.grants["A"].computed_tokens, group.grants["B"].computed_tokens) == (0, 16)
    assert (group.state("A"), group.state("B")) == (S.CONTEXT, S.DECODE)


def test_a11_all_states_void_computes_everything_again_in_its_place() -> None:
    group = CoreGroup(cap=2)
    group.submit("A", "B", "C")
    group.step()
    group.step()
    group.send(AllStatesVoid(last_step=group.step_number + 1), completed=group.step_number)
    assert (group.state("A"), group.state("B")) == (S.LOST, S.LOST)
    group.step()
    group.step()
    assert [group.grants[name].generation[1] for name in "AB"] == [3, 4]  # new ownerships
    assert group.residents == ["A", "B"]
    assert group.state("C") is S.WAITING


def test_a11_a_waiting_sequence_changes_its_demand() -> None:
    group = CoreGroup(cap=3)
    group.submit("R", demand=2)
    group.submit("W", demand=2)
    assert group.state("W") is S.WAITING
    group.send(DemandChanged("W", 1), completed=0)
    assert group.state("W") is S.CONTEXT
    group.submit("X", demand=2)
    group.send(DemandChanged("X", 9), completed=0)
    assert group.rejected["X"].reason is ErrorReason.DEMAND_EXCEEDS_CAP


def test_a11_demand_0_is_never_held_back_by_residency() -> None:
    group = CoreGroup(cap=1)
    group.submit("R")
    group.submit("embedding", demand=0)
    assert group.state("embedding") is S.CONTEXT
    assert group.grants["embedding"].slots == ()
    assert group.residents == ["R"]
    group.finish("embedding")
    assert group.state("embedding") is None


def test_a11_a_cached_state_is_reclaimed_before_anyone_waits_long() -> None:
    group = CoreGroup(cap=2)
    group.submit("A", "B")
    group.step()
    generation = group.grants["A"].generation
    group.send(Finished("A", generation, group.step_number, keep_as_cache=True), completed=group.step_number)
    assert group.state("A") is S.CACHED
    assert group.residents == ["A", "B"]
    group.submit("N")
    assert group.reclaimed == ["A"]
    group.send(Finished("A", generation, group.step_number), completed=group.step_number)
    assert group.state("N") is S.CONTEXT


def test_a05_demand_is_all_or_nothing_and_more_than_the_cap_fails_at_once() -> None:
    group = CoreGroup(cap=4)
    group.submit("R")
    group.submit("D", demand=4)
    assert group.world.held_slots == 1  # nothing is held while waiting
    group.submit("E", demand=5)
    assert group.rejected["E"].reason is ErrorReason.DEMAND_EXCEEDS_CAP
    assert "needs 5 slots at once and the group holds 4" in group.rejected["E"].message
    group.finish("R")
    assert len(group.grants["D"].slots) == 4


def test_s15_demand_counts_what_is_held() -> None:
    group = CoreGroup(cap=40)
    group.submit(*(f"q{n}" for n in range(11)), demand=4)
    assert len(group.residents) == 10


def test_a08_chunks_end_at_forced_boundaries_and_in_units() -> None:
    group = CoreGroup(cap=1, max_step_tokens=64, max_chunk_tokens=64)
    group.submit("A", prompt=150, chunk_boundaries=(50, 51))
    chunks = []
    while group.state("A") is S.CONTEXT:
        chunks += [(c.start, c.tokens) for c in group.step().decisions.chunks]
    assert chunks == [(0, 50), (50, 1), (51, 64), (115, 35)]


def test_a08_draft_tokens_are_charged_on_last_chunks_and_decodes() -> None:
    group = CoreGroup(cap=8, max_step_tokens=40, max_chunk_tokens=40, draft_tokens=3)
    group.submit("A", "B", "C")
    group.step()
    tokens = 2 * 4 + sum(c.tokens + 3 for c in group.step().decisions.chunks if c.last)
    assert tokens <= 40
    assert group.state("C") in (S.CONTEXT, S.DECODE)


def test_a08_an_engine_that_plans_its_own_chunks_is_granted_residency_only() -> None:
    group = CoreGroup(cap=1, start=False, max_step_tokens=16)
    for rank in group.ranks:
        group.report(rank.number)
    group.handle(SessionRegistered("e0", "engine", True, engine_budgets=True))
    group.listing("e0")
    group.submit("A", prompt=5000)
    assert group.state("A") is S.CONTEXT  # no token budget of ours
    assert group.step().decisions.chunks == []
    group.send(Progressed("A", group.grants["A"].generation, 5000), completed=0)
    assert group.state("A") is S.DECODE


def test_a08_kv_pages_of_a_first_chunk_are_promised_until_a_report_shows_them() -> None:
    group = CoreGroup(cap=8)
    group.report_kv(page_tokens=16, total=10, free=3)
    group.submit("a", "b", prompt=32)
    assert group.state("a") is S.CONTEXT
    assert group.reason("b") is WaitReason.KV_PAGES
    group.step()
    group.report_kv(page_tokens=16, total=10, free=1)  # a has taken its two
    assert group.reason("b") is WaitReason.KV_PAGES
    group.report_kv(page_tokens=16, total=10, free=2)
    assert group.state("b") is S.CONTEXT


def test_a08_what_the_pages_never_cover_fails_at_once() -> None:
    group = CoreGroup(cap=8, kv_full_length=True)
    group.report_kv(page_tokens=16, total=10, free=10)
    group.submit("big", prompt=200)
    assert group.rejected["big"].reason is ErrorReason.KV_EXCEEDS_POOL


def test_a06_the_queue_is_bounded_by_tokens_and_by_tenant() -> None:
    group = CoreGroup(cap=1, waiting_tokens_max=100, tenant_waiting_max=2)
    group.submit("R")
    group.submit("t1", "t2", tenant="a")
    group.submit("t3", tenant="a")
    assert "of tenant 'a' wait" in group.rejected["t3"].message
    group.submit("long", prompt=90, tenant="b")
    assert "tokens would wait" in group.rejected["long"].message


def test_a06_a_request_may_bring_its_own_deadline() -> None:
    group = CoreGroup(cap=1)
    group.submit("R")
    group.submit("D", deadline_ms=500)
    group.submit("E")
    group.tick(501)
    assert group.rejected["D"].reason is ErrorReason.WAIT_EXPIRED
    assert group.state("E") is S.WAITING


def test_a06_retry_after_comes_from_the_measured_release_rate() -> None:
    group = CoreGroup(cap=1, waiting_max=1)
    group.submit("a")
    for n in range(4):
        group.now_ms += 200
        group.submit(f"n{n}")
        group.finish("a" if not n else f"n{n - 1}")
    group.submit("w", "x")
    assert group.rejected["x"].retry_after_ms == 200


def test_d08_a_draining_group_starts_nothing_new() -> None:
    group = CoreGroup(cap=2)
    group.submit("A")
    group.drain()
    group.submit("B")
    assert group.reason("B") is WaitReason.DRAINING
    assert group.step().decisions.chunks


def test_a09_the_watchdog_names_it_once_and_is_cleared_by_progress() -> None:
    group = CoreGroup(cap=1, watchdog_steps=3, watchdog_ms=100)
    group.submit("A")
    group.step()
    group.suspend("A")
    group.submit("N")
    for _ in range(5):
        group.step(ms=50)
    group.tick()
    group.tick()
    found = [e for e in group.log if type(e).__name__ == "NoProgress"]
    assert len(found) == 1
    assert "1 sequences wait" in found[0].sentence
    group.suspend("A", suspended=False)
    group.step()
    assert group.world.no_progress == ""


def test_a07_blocked_waiters_cost_nothing_a_step() -> None:
    """Visited entries of a step are the same for 10 and for 100,000 blocked waiters."""
    visited = []
    for waiters in (10, 100_000):
        group = CoreGroup(cap=1, waiting_max=200_000)
        group.submit("R")
        group.step()
        group.check = lambda: None  # the integrity check is the only scan
        group.submit(*(f"w{n}" for n in range(waiters)))
        before = group.world.visited_count
        for _ in range(10):
            group.step()
        visited.append(group.world.visited_count - before)
    assert visited[0] == visited[1]

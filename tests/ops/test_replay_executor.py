"""The replaying executor against a session without processes: order of work, stamps that catch faults."""

from __future__ import annotations

import pytest

from stateroom.client import Decisions, RankInfo, Recompute
from stateroom.errors import StateroomError
from stateroom.residency.reasons import ErrorReason
from stateroom_ops.replay import ReplayExecutor
from stateroom_ops.replay_clock import VirtualClock
from stateroom_ops.replay_pools import ReplayPools
from stateroom_ops.replay_tally import ReplayTally
from stateroom_ops.traces import TraceRequest
from tests.ops.fakes import BOOT, FakePool, FakeSession, lost

STEP_MS = 50.0


class Run:
    """A session of `seats` over two pools, and an executor on virtual time."""

    def __init__(self, seats: int = 2, **session: int) -> None:
        self.pools = [FakePool(seats + 1), FakePool(seats + 1)]
        self.session = FakeSession(seats, self.pools, **session)
        self.by_address = {f"rank{rank}": pool for rank, pool in enumerate(self.pools)}
        self.events: list[str] = []
        self.ended: list[tuple[str, str]] = []
        self.before_step: dict[int, object] = {}
        self.executor = ReplayExecutor(
            self.session,  # type: ignore[arg-type]
            ReplayPools(self.by_address.__getitem__),
            VirtualClock(STEP_MS),
            traceparent_of=lambda name: f"parent-of-{name}",
            on_end=lambda name, outcome: self.ended.append((name, outcome)),
            on_event=self.events.append,
            on_step=self._stepped,
        )

    def _stepped(self, tally: ReplayTally) -> None:
        act = self.before_step.pop(tally.steps + 1, None)
        if act is not None:
            act()  # type: ignore[operator]


def _burst(count: int, prompt: int = 250, output: int = 4) -> list[TraceRequest]:
    return [TraceRequest(0.0, prompt, output) for _ in range(count)]


async def test_every_request_finishes_and_no_more_are_resident_than_there_are_seats() -> None:
    run = Run(seats=2)
    tally = await run.executor.run(_burst(5))
    assert (tally.finished, tally.errors_count, tally.peak_residents) == (5, 0, 2)
    assert tally.tokens_context == 5 * 250
    assert tally.tokens_generated == 5 * 4
    assert run.session.peak == 2
    assert not run.session.held
    assert [name for name, _ in run.ended] == [f"req-{n:06d}" for n in range(5)]
    assert run.session.parents["req-000003"] == "parent-of-req-000003"


async def test_waits_are_of_virtual_time_and_go_to_their_reason() -> None:
    """One seat: 250 tokens in chunks of 100 are 3 steps, 4 tokens are 4 more; the next one starts after 7."""
    run = Run(seats=1)
    tally = await run.executor.run(_burst(3))
    assert tally.waits_ms == [0.0, 7 * STEP_MS, 14 * STEP_MS]
    assert tally.waits_sequences == {"RESIDENCY_CAP": 2}
    assert tally.waits_ms_by_reason == {"RESIDENCY_CAP": 21 * STEP_MS}
    assert tally.longest_wait == (14 * STEP_MS, "req-000002")


async def test_the_same_run_comes_out_twice() -> None:
    requests = [TraceRequest(37.0 * n, 120 + n, 3 + n % 5) for n in range(40)]
    summaries = []
    for _ in range(2):
        summary = (await Run(seats=3).executor.run(requests)).as_dict()
        for timed in ("real_s", "throughput"):
            del summary[timed]
        summaries.append(summary)
    assert summaries[0] == summaries[1]


async def test_an_idle_stretch_of_the_trace_takes_no_steps() -> None:
    tally = await Run().executor.run([TraceRequest(0.0, 10, 2), TraceRequest(3_600_000.0, 10, 2)])
    assert tally.finished == 2
    assert tally.steps < 12
    assert tally.clock_ms >= 3_600_000.0


async def test_rejections_are_counted_by_reason_and_are_no_errors() -> None:
    run = Run(tokens_max=1000)
    tally = await run.executor.run([TraceRequest(0.0, p, 5) for p in (10, 5000, -3, 20)])
    assert tally.finished == 2
    assert tally.rejected_by_reason == {"TOO_MANY_TOKENS": 1, "INVALID_REQUEST": 1}
    assert tally.errors_count == 0


async def test_a_row_that_someone_else_wrote_shows_as_an_error() -> None:
    run = Run(seats=2)

    def overwrite() -> None:
        run.pools[1].layers[9]["recurrent"][1] += 1

    run.before_step = {5: overwrite}
    tally = await run.executor.run(_burst(2, prompt=10, output=10))
    assert tally.errors_count == 1
    assert "req-000000: row 1 of rank 1 holds" in tally.errors[0]


async def test_a_dirty_row_shows_at_its_first_use() -> None:
    run = Run(seats=1)
    run.pools[0].bytes[1280 + 700] = 1  # row 1, in no stamp's place
    tally = await run.executor.run(_burst(1))
    assert tally.errors == ["req-000000: row 1 of rank 0 was not zero at its first use"]


async def test_two_sequences_in_one_row_show_as_errors() -> None:
    run = Run(seats=2)
    run.session.free[1] = 1  # the scheduler's fault
    tally = await run.executor.run(_burst(2, prompt=10, output=3))
    assert tally.errors_count > 0


async def test_a_handle_of_another_pool_is_refused_c3() -> None:
    run = Run(seats=1)
    run.session.boot_id = "another"
    tally = await run.executor.run(_burst(1, prompt=10, output=1))
    assert any("another boot id" in sentence for sentence in tally.errors)


async def test_a_rank_that_comes_back_empty_is_attached_and_its_sequences_are_computed_again() -> None:
    run = Run(seats=2)
    old, new = run.pools[1], FakePool(3)

    def restart() -> None:
        run.by_address["rank1"] = run.session.pools[1] = new
        run.session.pending_ranks.add(1)
        run.session.next = Decisions(
            0, recompute=lost(run.session), attach=(RankInfo(1, "rank1", BOOT, True),)
        )

    run.before_step = {4: restart}
    tally = await run.executor.run(_burst(3, prompt=150, output=6))
    assert (tally.finished, tally.recomputed, tally.errors_count) == (3, 2, 0)
    assert run.session.let_go_ids == ["req-000000", "req-000001"]
    assert old.closed
    assert run.session.attached_pools[-1] == (1, BOOT)
    assert [line.partition(": ")[2] for line in run.events] == [
        "2 sequences are computed again (rank 0 restarted)",
        "a rank is pending: new admissions wait (RANK_PENDING), what runs goes on",
        "rank 1 is back with an empty pool (boot id boot-1), attached again",
        "every rank is there: admissions go on",
    ]


async def test_a_new_pool_that_is_not_agreed_yet_is_asked_for_again_beside_the_loop() -> None:
    run = Run(seats=2)
    answers = iter([StateroomError(ErrorReason.NOT_COMMITTED, "not yet"), StateroomError(None, "gone")])

    def attach(address: str) -> FakePool:
        if run.by_address[address] is new and (error := next(answers, None)) is not None:
            raise error
        return run.by_address[address]

    run.executor._pools._attach = attach
    new = FakePool(3)

    def restart() -> None:
        run.by_address["rank1"] = run.session.pools[1] = new
        run.session.pending_ranks.add(1)
        run.session.next = Decisions(
            0, recompute=lost(run.session), attach=(RankInfo(1, "rank1", BOOT, True),)
        )

    run.before_step = {4: restart}
    tally = await run.executor.run(_burst(3))
    assert (tally.finished, tally.errors) == (3, [])
    assert next(answers, None) is None


async def test_a_pool_that_cannot_be_attached_is_an_error_with_the_reason() -> None:
    run = Run(seats=1)

    def restart() -> None:
        def refuse(address: str) -> FakePool:
            raise StateroomError(ErrorReason.LAYOUT_DIFFERS, "another layout")

        run.executor._pools._attach = refuse
        run.session.next = Decisions(0, attach=(RankInfo(1, "rank1", BOOT, True),))

    run.before_step = {4: restart}
    tally = await run.executor.run(_burst(2, output=200))
    assert tally.errors == ["a pool could not be attached: another layout"]


async def test_a_grant_that_is_lost_or_cancelled_in_the_same_answer_is_let_go() -> None:
    """A push may be overtaken by the fall of a rank before the executor takes its next step (rule A11)."""
    run = Run(seats=2)
    step = run.session.step

    async def overtaken(completed_step: int | None = None) -> Decisions:
        decisions = await step(completed_step)
        if decisions.step == 1:
            first, second = (grant.sequence_id for grant in decisions.grants)
            for sequence in run.session.held.values():
                sequence.computed = 0
            decisions.chunks = ()
            decisions.recompute = (Recompute(first, (1, 1), "rank 0 restarted"),)
            decisions.cancelled = (second,)
        return decisions

    run.session.step = overtaken
    tally = await run.executor.run(_burst(2))
    assert (tally.finished, tally.cancelled, tally.recomputed, tally.errors) == (1, 1, 1, [])
    assert not run.session.held


async def test_a_cancel_from_elsewhere_ends_a_running_sequence() -> None:
    run = Run(seats=1)

    def cancel() -> None:
        run.session.next = Decisions(0, cancelled=("req-000000",))

    run.before_step = {4: cancel}
    tally = await run.executor.run(_burst(2))
    assert (tally.finished, tally.cancelled, tally.errors_count) == (1, 1, 0)
    assert ("req-000000", "cancelled") in run.ended


async def test_while_the_scheduler_is_away_what_runs_goes_on_d7(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateroom_ops.replay.IDLE_WAIT_SECONDS", 0.0)
    run = Run(seats=1)
    run.before_step = {
        4: lambda: setattr(run.session, "next", Decisions(0, away=True)),
    }
    tally = await run.executor.run(_burst(1, prompt=10, output=6))
    assert (tally.finished, tally.away_steps, tally.errors_count) == (1, 1, 0)
    assert [line.partition(": ")[2] for line in run.events] == [
        "the scheduler is away: what runs goes on",
        "the scheduler is back",
    ]


async def test_a_group_that_never_moves_is_given_up_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateroom_ops.replay.STALL_SECONDS_MAX", 0.0)
    run = Run(seats=1)
    run.session.free.clear()
    tally = await run.executor.run(_burst(2))
    assert tally.errors[0].startswith("nothing has moved for 0 s: 2 sequences wait (2 for RESIDENCY_CAP)")

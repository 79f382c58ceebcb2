"""A replaying executor: drives a session as an engine's loop does, with stamps for a model.

A step: facts of the last one go out, decisions come in, chunks are computed and every decoding sequence
makes a token, which here means: check the stamps in every layer's view of its row on every rank, and
write the next ones. A sequence whose last chunk is computed decodes from the next step on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from stateroom.client import Decisions, Grant, Recompute, Session
from stateroom.errors import StateroomError
from stateroom.residency.reasons import WaitReason
from stateroom_ops.replay_clock import Clock
from stateroom_ops.replay_model import StampingModel
from stateroom_ops.replay_pools import ReplayPools
from stateroom_ops.replay_tally import ReplayTally
from stateroom_ops.replay_waits import WaitBook
from stateroom_ops.traces import TraceRequest

__all__ = ["ReplayExecutor", "sequence_name"]

STALL_SECONDS_MAX = 120.0
SCRUBBING = WaitReason.SCRUBBING.value
RANK_PENDING = WaitReason.RANK_PENDING.value
SETTLE_SECONDS_MAX = 1.0
IDLE_WAIT_SECONDS = 0.05  # how long to listen for a push where nothing runs


def sequence_name(run: str, number: int) -> str:
    """Id of the n-th request of a run."""
    return f"{run}-{number:06d}"


class ReplayExecutor:
    """`run` submits every request and returns when all have come to an end.

    `traceparent_of(id)` gives the parent of a sequence's admission span; `on_step(tally)` is called after
    each step. Faults are counted in the tally, never raised; CancelledError passes at any await.
    """

    def __init__(
        self,
        session: Session,
        pools: ReplayPools,
        clock: Clock,
        *,
        run: str = "req",
        traceparent_of: Callable[[str], str] = lambda name: "",
        on_end: Callable[[str, str], None] = lambda name, outcome: None,
        on_event: Callable[[str], None] = lambda sentence: None,
        on_step: Callable[[ReplayTally], None] = lambda tally: None,
    ) -> None:
        self.tally = ReplayTally()
        self._session, self._pools, self._clock = session, pools, clock
        self._run_name, self._traceparent_of = run, traceparent_of
        self._on_end, self._on_event, self._on_step = on_end, on_event, on_step
        self._waits = WaitBook(session, self.tally)
        self._model = StampingModel(pools, self.tally)
        self._output_tokens: dict[str, int] = {}
        self._last_step = 0
        self._away = self._pending = False
        self._moved_at = time.monotonic()

    async def run(self, requests: Sequence[TraceRequest]) -> ReplayTally:
        """Replays them all."""
        tally, clock, began = self.tally, self._clock, time.monotonic()
        tally.requests = len(requests)
        await self._attach_all()
        sent = 0
        while tally.settled < len(requests):
            while sent < len(requests) and requests[sent].arrival_ms <= clock.trace_ms:
                self._submit(sent, requests[sent])
                sent += 1
            await self._step()
            tally.real_s, tally.clock_ms = time.monotonic() - began, clock.now_ms
            self._on_step(tally)
            if self._is_stalled():
                break
            if not self._session.held and not self._waits and sent < len(requests):
                await clock.idle_until(requests[sent].arrival_ms)
            else:
                await self._pass_time()
        await self._session.step(completed_step=self._last_step)  # the last fences (rule C2)
        return tally

    async def _attach_all(self) -> None:
        for rank in await asyncio.gather(*map(self._pools.attach, self._session.info.ranks)):
            self._session.attached(rank.rank, rank.boot_id)

    def _submit(self, number: int, request: TraceRequest) -> None:
        name = sequence_name(self._run_name, number)
        try:
            self._session.submit(
                name, request.prompt_tokens, request.output_tokens, traceparent=self._traceparent_of(name)
            )
        except ValueError:  # a negative length does not even fit in the message
            self._reject(name, "INVALID_REQUEST")
            return
        self._output_tokens[name] = request.output_tokens
        self._waits.arrived(name, self._clock.now_ms)

    async def _step(self) -> None:
        decisions = await self._session.step(completed_step=self._last_step)
        self._last_step = decisions.step
        tally = self.tally
        tally.steps += 1
        tally.away_steps += decisions.away
        if not decisions.away:
            tally.residents, tally.waiting = decisions.residents_count, decisions.waiting_count
        tally.peak_residents = max(tally.peak_residents, tally.residents)
        tally.peak_waiting = max(tally.peak_waiting, tally.waiting)
        self._apply(decisions)
        if self._clock.is_virtual:
            # binds in flight are told before time passes, so that the same run comes out every time
            await self._settle()
        self._waits.told(self._session.held, self._clock.now_ms)
        self._waits.sample(self._clock.now_ms)
        self._say_pending()
        if decisions.away:
            await asyncio.sleep(IDLE_WAIT_SECONDS)

    async def _settle(self) -> None:
        """Until no bind is in flight and no freed slot is being zeroed (the ranks' threads have a time of
        their own), at most SETTLE_SECONDS_MAX."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        await self._session.settle()
        while self._waits.first_reason() == SCRUBBING and time.monotonic() < deadline:
            await self._session.wait(IDLE_WAIT_SECONDS)
            await self._session.settle()

    def _apply(self, decisions: Decisions) -> None:
        self._say_away(decisions.away)
        self._attach_new(decisions)
        # a grant may stand beside its own loss or cancel, where it was pushed and then overtaken
        overtaken = {*(lost.sequence_id for lost in decisions.recompute), *decisions.cancelled}
        for grant in decisions.grants:
            self._start(grant, check=grant.sequence_id not in overtaken)
        lost = [recompute for recompute in decisions.recompute if self._lose(recompute)]
        if lost:
            self._event(f"{len(lost)} sequences are computed again ({lost[0].message})")
        for rejection in decisions.rejections:
            self._waits.ended(rejection.sequence_id)
            self._reject(rejection.sequence_id, rejection.reason)
        for name in decisions.cancelled:
            self._cancel(name)
        self._decode()
        self._model.prefill(decisions.chunks)
        if decisions.grants or decisions.chunks or decisions.rejections or self._model.decoding_count:
            self._moved_at = time.monotonic()

    def _decode(self) -> None:
        for name, output_tokens in self._model.decode():
            self._session.finish(name, output_tokens=output_tokens)
            self.tally.finished += 1
            self._on_end(name, "finished")

    def _say_away(self, away: bool) -> None:
        if away != self._away:
            self._away = away
            self._event("the scheduler is away: what runs goes on" if away else "the scheduler is back")

    def _say_pending(self) -> None:
        pending = self._waits.first_reason() == RANK_PENDING
        if pending != self._pending:
            self._pending = pending
            self._event(
                "a rank is pending: new admissions wait (RANK_PENDING), what runs goes on"
                if pending
                else "every rank is there: admissions go on"
            )

    # ---- what the decisions say ----

    def _attach_new(self, decisions: Decisions) -> None:
        for rank in decisions.attach:
            self._pools.attach_soon(rank)
        try:
            for rank in self._pools.attached():
                self._session.attached(rank.rank, rank.boot_id)
                self._event(
                    f"rank {rank.rank} is back with an empty pool (boot id {rank.boot_id[:8]}), attached again"
                )
        except StateroomError as error:
            self.tally.fail(f"a pool could not be attached: {error.message}")

    def _lose(self, lost: Recompute) -> bool:
        if not self._model.stop(lost.sequence_id):
            return False
        self.tally.recomputed += 1
        self._session.let_go(lost.sequence_id)
        self._waits.arrived(lost.sequence_id, self._clock.now_ms)
        return True

    def _event(self, sentence: str) -> None:
        line = f"step {self._last_step}: {sentence}"
        self.tally.events.append(line)
        self._on_event(line)

    def _reject(self, name: str, reason: str) -> None:
        self.tally.rejected_by_reason[reason] += 1
        self._on_end(name, "rejected")

    def _cancel(self, name: str) -> None:
        self.tally.cancelled += 1
        self._waits.ended(name)
        if self._model.stop(name):
            self._session.finish(name)
        self._on_end(name, "cancelled")

    def _start(self, grant: Grant, *, check: bool) -> None:
        name = grant.sequence_id
        self._waits.told((name,), self._clock.now_ms, at_once=not grant.wait_ms)
        self._model.start(grant, self._output_tokens[name], check=check)

    # ---- time ----

    async def _pass_time(self) -> None:
        if self._clock.is_virtual and not self._session.held and self._waits:
            # nothing runs, so time does not pass by steps: listen until something can start
            await self._session.wait(IDLE_WAIT_SECONDS)
        await self._clock.next_step()

    def _is_stalled(self) -> bool:
        """Nothing started, ran or ended for long: said with the reasons, and given up."""
        idle_s = time.monotonic() - self._moved_at
        if idle_s < STALL_SECONDS_MAX or not self._waits:
            return False
        reasons = ", ".join(f"{n} for {reason}" for reason, n in self.tally.waiting_by_reason.items())
        self.tally.fail(
            f"nothing has moved for {idle_s:.0f} s: {len(self._waits)} sequences wait ({reasons})"
        )
        return True

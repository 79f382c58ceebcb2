"""A replaying executor: drives a session as an engine's loop does, with stamps for a model.

A step: facts of the last one go out, decisions come in, chunks are computed and every decoding sequence
makes a token, which here means: check the stamps in every layer's view of its row on every rank, and
write the next ones. A sequence whose last chunk is computed decodes from the next step on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stateroom.client import Chunk, Decisions, Grant, Recompute, Session
from stateroom.residency.reasons import WaitReason
from stateroom_ops.replay_clock import Clock
from stateroom_ops.replay_pools import ReplayPools
from stateroom_ops.replay_rows import DecodingRows
from stateroom_ops.replay_tally import ReplayTally
from stateroom_ops.replay_waits import WaitBook
from stateroom_ops.stamps import Rows, id_hash
from stateroom_ops.traces import TraceRequest

__all__ = ["ReplayExecutor", "sequence_name"]

STALL_SECONDS_MAX = 120.0
SCRUBBING = WaitReason.SCRUBBING.value
SETTLE_SECONDS_MAX = 1.0
IDLE_WAIT_SECONDS = 0.05  # how long to listen for a push where nothing runs


def sequence_name(run: str, number: int) -> str:
    """Id of the n-th request of a run."""
    return f"{run}-{number:06d}"


@dataclass(slots=True)
class _Running:
    slots: tuple[int, ...]
    request: TraceRequest


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
        self._run_name, self._traceparent_of, self._on_end, self._on_step = (
            run,
            traceparent_of,
            on_end,
            on_step,
        )
        self._on_event = on_event
        self._waits = WaitBook(session, self.tally)
        self._running: dict[str, _Running] = {}
        self._decoding = DecodingRows()
        self._requests: dict[str, TraceRequest] = {}
        self._last_step = 0
        self._away = False
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
        for rank in await self._pools.attach(self._session.info.ranks):
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
        self._requests[name] = request
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
        await self._apply(decisions)
        if self._clock.is_virtual:
            # binds in flight are told before time passes, so that the same run comes out every time
            await self._settle()
        self._waits.told(self._session.held, self._clock.now_ms)
        self._waits.sample(self._clock.now_ms)
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

    async def _apply(self, decisions: Decisions) -> None:
        lost = [recompute for recompute in decisions.recompute if self._lose(recompute)]
        if lost:
            self._event(f"{len(lost)} sequences are computed again ({lost[0].message})")
        if decisions.away != self._away:
            self._away = decisions.away
            self._event("the scheduler is away: what runs goes on" if self._away else "the scheduler is back")
        if decisions.attach:
            await self._attach_new(decisions)
        for rejection in decisions.rejections:
            self._waits.ended(rejection.sequence_id)
            self._reject(rejection.sequence_id, rejection.reason)
        for name in decisions.cancelled:
            self._cancel(name)
        for grant in decisions.grants:
            self._start(grant)
        self._decode()
        self._prefill(decisions.chunks)
        if decisions.grants or decisions.chunks or decisions.rejections or len(self._decoding):
            self._moved_at = time.monotonic()

    # ---- what the decisions say ----

    async def _attach_new(self, decisions: Decisions) -> None:
        for rank in await self._pools.attach(decisions.attach):
            self._session.attached(rank.rank, rank.boot_id)
            self._event(
                f"rank {rank.rank} is back with an empty pool (boot id {rank.boot_id[:8]}), attached again"
            )

    def _lose(self, lost: Recompute) -> bool:
        if self._running.pop(lost.sequence_id, None) is None:
            return False
        self.tally.recomputed += 1
        self._decoding.leave(lost.sequence_id)
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
        if self._running.pop(name, None) is not None:
            self._decoding.leave(name)
            self._session.finish(name)
        self._on_end(name, "cancelled")

    def _start(self, grant: Grant) -> None:
        name = grant.sequence_id
        self._waits.told((name,), self._clock.now_ms, at_once=not grant.wait_ms)
        for fault in self._pools.faults_of_grant(grant):
            self.tally.fail(fault)
        self._running[name] = _Running(tuple(h.slot for h in grant.handles), self._requests[name])

    # ---- the model's work ----

    def _prefill(self, chunks: Sequence[Chunk]) -> None:
        present = [chunk for chunk in chunks if chunk.sequence_id in self._running]
        for chunk in chunks:
            if chunk.sequence_id not in self._running:
                self.tally.fail(f"{chunk.sequence_id}: a chunk came for a sequence that holds no slot here")
        later = [chunk for chunk in present if chunk.start]
        if later:
            self._check(self._rows(later, [c.start for c in later]), [c.sequence_id for c in later])
        if present:
            self._pools.write(self._rows(present, [c.start + c.tokens for c in present]))
        for chunk in present:
            self.tally.tokens_context += chunk.tokens
            if chunk.last:
                running = self._running[chunk.sequence_id]
                self._decoding.join(
                    chunk.sequence_id,
                    running.slots,
                    chunk.start + chunk.tokens,
                    running.request.output_tokens,
                )

    def _rows(self, chunks: Sequence[Chunk], counts: Sequence[int]) -> Rows:
        slots, hashes, tokens = [], [], []
        for chunk, count in zip(chunks, counts, strict=True):
            for slot in self._running[chunk.sequence_id].slots:
                slots.append(slot)
                hashes.append(id_hash(chunk.sequence_id))
                tokens.append(count)
        return Rows.of(slots, hashes, tokens)

    def _check(self, rows: Rows, names: list[str]) -> None:
        for fault in self._pools.faults_of_rows(rows, names):
            self.tally.fail(fault)

    def _decode(self) -> None:
        if not len(self._decoding):
            return
        self._check(self._decoding.rows, self._decoding.row_names)
        self.tally.tokens_generated += len(self._decoding)
        done = self._decoding.advance()
        self._pools.write(self._decoding.rows)
        for name in done:
            self._decoding.leave(name)
            request = self._running.pop(name).request
            self._session.finish(name, output_tokens=request.output_tokens)
            self.tally.finished += 1
            self._on_end(name, "finished")

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

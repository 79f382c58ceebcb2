"""An executor's own book of its session: what it holds, what waits, what it has yet to say.

Pure (no I/O, no clock): `request` makes the next message, `apply` takes an answer in. The book is what
makes a broken stream harmless: `whole_list` says everything again (rule D5), and answers of an older
term than the highest heard are dropped (rule D4).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stateroom.client.decisions import (
    Chunk,
    Decisions,
    Grant,
    Handle,
    Preemption,
    RankInfo,
    Recompute,
    Rejection,
)
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types

__all__ = ["HeldSequence", "SessionBook"]

TRANSFERS = {
    "started": pb.TRANSFER_EVENT_STARTED,
    "completed": pb.TRANSFER_EVENT_COMPLETED,
    "failed": pb.TRANSFER_EVENT_FAILED,
}


@dataclass(slots=True)
class HeldSequence:
    """A sequence that holds slots; `state` is a SequenceState number of the wire."""

    arrival: pb.Arrival
    handles: tuple[types.Handle, ...]
    state: types.SequenceState.ValueType
    computed_tokens: int = 0
    last_step: int = 0

    @property
    def generation(self) -> types.Generation:
        """The ownership."""
        return self.handles[0].generation if self.handles else types.Generation()


@dataclass(slots=True)
class _Fenced:
    last_step: int
    held: HeldSequence = field(repr=False)


class SessionBook:
    """One session's book."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.step = 0
        self.completed_step = 0
        self.term = 0
        self.held: dict[str, HeldSequence] = {}
        self.waiting: dict[str, pb.Arrival] = {}
        self.binding_count = 0
        self._fenced: dict[str, _Fenced] = {}  # ended or let go, last step not done
        self._attached: dict[int, str] = {}
        self._lane_of: dict[str, int] = {}
        self._reason_of_lane: dict[int, str] = {}
        self._delta_number = 0
        self._facts = pb.StepRequest()
        self._heard = Decisions(0)

    # ---- facts ----

    def submit(self, arrival: pb.Arrival) -> None:
        """A new sequence."""
        self._facts.arrivals.append(arrival)
        if (
            arrival.sequence_id not in self.held
        ):  # a used id is the scheduler's to reject; the first stays ours
            self.waiting.setdefault(arrival.sequence_id, arrival)

    def finish(
        self, sequence_id: str, last_step: int | None, output_tokens: int, keep_as_cache: bool = False
    ) -> None:
        """Let go of a held sequence; its slot is reusable once `last_step` is reported done (rule C2)."""
        held = self._hold(sequence_id)
        last = self.step if last_step is None else last_step
        self._facts.finishes.add(
            sequence_id=sequence_id,
            generation=held.generation,
            last_step=last,
            output_tokens=output_tokens,
            keep_as_cache=keep_as_cache,
        )
        if keep_as_cache:
            held.state = types.SEQUENCE_STATE_CACHED
            return
        self._fence(sequence_id, held, types.SEQUENCE_STATE_RETIRING, last)

    def cancel(self, sequence_id: str) -> None:
        """End it, waiting or held; one that was held is stopped by the caller first."""
        if self.waiting.pop(sequence_id, None) is not None:
            self._facts.cancels.append(sequence_id)
        elif sequence_id in self.held:
            self.finish(sequence_id, None, 0)

    def transfer(self, sequence_id: str, event: str) -> None:
        """A state transfer started, completed or failed."""
        held = self._hold(sequence_id)
        self._facts.transfers.add(sequence_id=sequence_id, generation=held.generation, event=TRANSFERS[event])
        if event == "started":
            held.state = types.SEQUENCE_STATE_TRANSFER_IN
        elif event == "completed" and held.state != types.SEQUENCE_STATE_TRANSFER_OUT:
            held.state = types.SEQUENCE_STATE_DECODE
            held.computed_tokens = held.arrival.prompt_tokens
        else:
            del self.held[sequence_id]

    def suspend(self, sequence_id: str, suspended: bool) -> None:
        """It pauses or goes on; its slot stays."""
        held = self._hold(sequence_id)
        self._facts.suspensions.add(sequence_id=sequence_id, generation=held.generation, suspended=suspended)
        going_on = (
            types.SEQUENCE_STATE_CONTEXT
            if held.computed_tokens < held.arrival.prompt_tokens
            else types.SEQUENCE_STATE_DECODE
        )
        held.state = types.SEQUENCE_STATE_SUSPENDED if suspended else going_on

    def decline(self, sequence_id: str, why: str) -> None:
        """A grant that the engine will not start now; it waits with reason ENGINE until `ready`."""
        held = self.held.pop(sequence_id)
        self._facts.grant_answers.add(sequence_id=sequence_id, generation=held.generation, declined=why)
        held.arrival.engine_hold = why
        self.waiting[sequence_id] = held.arrival

    def ready(self, sequence_id: str) -> None:
        """The engine is ready now for one it declined or held back."""
        self.waiting[sequence_id].engine_hold = ""
        self._facts.ready.append(sequence_id)

    def let_go(self, sequence_id: str, last_step: int | None, state_kept: bool = False) -> None:
        """Answer to a recompute or a preemption."""
        held = self._hold(sequence_id)
        last = self.step if last_step is None else last_step
        self._facts.let_go.add(
            sequence_id=sequence_id, generation=held.generation, last_step=last, state_kept=state_kept
        )
        self._fence(sequence_id, held, types.SEQUENCE_STATE_LOST, last)

    def preempted(self, sequence_id: str, last_step: int | None, state_kept: bool) -> None:
        """The engine stopped it by itself; it waits again, in its place."""
        held = self._hold(sequence_id)
        last = self.step if last_step is None else last_step
        self._facts.preempted.add(
            sequence_id=sequence_id, generation=held.generation, last_step=last, state_kept=state_kept
        )
        self._fence(sequence_id, held, types.SEQUENCE_STATE_LOST, last)

    def all_states_void(self, last_step: int | None) -> None:
        """No state is valid any more: every held sequence waits again, in its place."""
        last = self.step if last_step is None else last_step
        self._facts.all_states_void.last_step = last
        for name, held in list(self.held.items()):
            cached = held.state == types.SEQUENCE_STATE_CACHED
            self._fence(
                name, held, types.SEQUENCE_STATE_RETIRING if cached else types.SEQUENCE_STATE_LOST, last
            )

    def demand(self, sequence_id: str, demand: int) -> None:
        """A waiting sequence needs another number of slots."""
        self.waiting[sequence_id].demand = demand
        self._facts.demand_changes.add(sequence_id=sequence_id, demand=demand)

    def progress(self, sequence_id: str, computed_tokens: int) -> None:
        """How far a context is, where the engine plans its chunks."""
        held = self._hold(sequence_id)
        held.computed_tokens = computed_tokens
        if computed_tokens >= held.arrival.prompt_tokens:
            held.state = types.SEQUENCE_STATE_DECODE
        self._facts.progress.add(
            sequence_id=sequence_id, generation=held.generation, computed_tokens=computed_tokens
        )

    def kv_pages(self, page_tokens: int, total_pages: int, free_pages: int) -> None:
        """The engine's KV pages now."""
        self._facts.kv_pages.CopyFrom(
            pb.KvPages(page_tokens=page_tokens, total_pages=total_pages, free_pages=free_pages)
        )

    def attached(self, rank: int, boot_id: str) -> None:
        """A worker mapped a pool."""
        self._attached[rank] = boot_id
        self._facts.attached.add(rank=rank, boot_id=boot_id)

    def _hold(self, sequence_id: str) -> HeldSequence:
        held = self.held.get(sequence_id)
        if held is None:
            raise KeyError(f"sequence {sequence_id!r} holds no slot: only a granted one can do this")
        return held

    def _fence(
        self, sequence_id: str, held: HeldSequence, state: types.SequenceState.ValueType, last_step: int
    ) -> None:
        del self.held[sequence_id]
        held.state, held.last_step = state, last_step
        self._fenced[sequence_id] = _Fenced(last_step, held)

    # ---- messages ----

    def request(self, *, ask: bool, completed_step: int | None, full: bool = False) -> pb.StepRequest:
        """The facts so far as one message; with `ask`, a question for the next step."""
        self._complete(completed_step)
        message, self._facts = self._facts, pb.StepRequest()
        self._delta_number += 1
        message.delta_number = self._delta_number
        message.completed_step = self.completed_step
        if ask:
            self.step += 1
            message.step = self.step
            message.full = full
        return message

    def whole_list(self) -> pb.StepRequest:
        """The first message of a stream: everything, so that nothing has to be replayed (rule D5)."""
        self._facts = pb.StepRequest()
        self._delta_number += 1
        listed = pb.SessionList(waiting=self.waiting.values())
        for held in (*self.held.values(), *(f.held for f in self._fenced.values())):
            listed.held.add(
                arrival=held.arrival,
                handles=held.handles,
                state=held.state,
                computed_tokens=held.computed_tokens,
                last_step=held.last_step,
            )
        message = pb.StepRequest(
            session_id=self.session_id,
            delta_number=self._delta_number,
            completed_step=self.completed_step,
            list=listed,
        )
        for rank, boot_id in self._attached.items():
            message.attached.add(rank=rank, boot_id=boot_id)
        return message

    def _complete(self, completed_step: int | None) -> None:
        if completed_step is not None:
            self.completed_step = max(self.completed_step, min(completed_step, self.step))
        for name, fenced in list(self._fenced.items()):
            if fenced.last_step <= self.completed_step:
                del self._fenced[name]
                if fenced.held.state == types.SEQUENCE_STATE_LOST:
                    self.waiting[name] = fenced.held.arrival

    # ---- answers ----

    def apply(self, response: pb.StepResponse) -> None:
        """Takes an answer or a push in; `take` hands out what was heard."""
        if response.term < self.term:
            return  # of a scheduler that does not lead any more (rule D4)
        self.term = response.term
        heard = self._heard
        heard.grants += tuple(g for g in map(self._granted, response.grants) if g is not None)
        heard.chunks += tuple(self._chunk(c) for c in response.chunks)
        heard.rejections += tuple(self._rejected(r) for r in response.rejections)
        heard.recompute += tuple(r for r in map(self._lost, response.recompute) if r is not None)
        heard.preemptions += tuple(p for p in map(self._preempted, response.preemptions) if p is not None)
        heard.reclaim += tuple(
            r.sequence_id for r in response.reclaim if self._is_mine(r.sequence_id, r.generation)
        )
        heard.cancelled += tuple(name for name in response.cancelled if self._cancelled(name))
        heard.attach += tuple(RankInfo.of(a) for a in response.attach)
        for queued in response.queued:
            self._lane_of[queued.sequence_id] = queued.lane
        for lane in response.lanes:
            self._reason_of_lane[lane.lane] = types.WaitReason.Name(lane.reason).removeprefix("WAIT_REASON_")
        self.binding_count = heard.binding_count = response.binding_count
        heard.residents_count = response.residents_count
        heard.waiting_count = response.waiting_count
        heard.decode_count = response.decode_count

    def take(self, step: int, *, away: bool = False) -> Decisions:
        """What was heard since the last take."""
        heard, self._heard = self._heard, Decisions(0)
        heard.step, heard.away = step, away
        return heard

    def reason_of(self, sequence_id: str) -> str | None:
        """Why a waiting sequence waits, as last told."""
        lane = self._lane_of.get(sequence_id)
        return self._reason_of_lane.get(lane) if lane is not None and sequence_id in self.waiting else None

    def _granted(self, grant: pb.Grant) -> Grant | None:
        arrival = self.waiting.pop(grant.sequence_id, None)
        self._lane_of.pop(grant.sequence_id, None)
        handles = tuple(grant.handles)
        if arrival is None:  # crossed a cancel: given back once (rule A11)
            generation = handles[0].generation if handles else types.Generation()
            self._facts.finishes.add(sequence_id=grant.sequence_id, generation=generation, last_step=0)
            return None
        init = arrival.kind == types.SEQUENCE_KIND_GENERATION_INIT
        state = types.SEQUENCE_STATE_GENERATION_INIT if init else types.SEQUENCE_STATE_CONTEXT
        if grant.computed_tokens >= arrival.prompt_tokens:
            state = types.SEQUENCE_STATE_DECODE
        self.held[grant.sequence_id] = HeldSequence(arrival, handles, state, grant.computed_tokens)
        return Grant(
            grant.sequence_id,
            tuple(map(Handle.of, handles)),
            grant.wait_ms,
            grant.needs_clear,
            grant.computed_tokens,
        )

    def _chunk(self, chunk: pb.Chunk) -> Chunk:
        held = self.held.get(chunk.sequence_id)
        if held is not None:
            held.computed_tokens = chunk.start + chunk.tokens
            if chunk.last:
                sends = held.arrival.kind == types.SEQUENCE_KIND_CONTEXT_ONLY
                held.state = types.SEQUENCE_STATE_TRANSFER_OUT if sends else types.SEQUENCE_STATE_DECODE
        return Chunk(chunk.sequence_id, chunk.start, chunk.tokens, chunk.last)

    def _rejected(self, rejection: pb.Rejection) -> Rejection:
        if rejection.reason != "SEQUENCE_ID_IN_USE":
            self.waiting.pop(rejection.sequence_id, None)
        self._lane_of.pop(rejection.sequence_id, None)
        return Rejection(rejection.sequence_id, rejection.reason, rejection.message, rejection.retry_after_ms)

    def _lost(self, lost: pb.Recompute) -> Recompute | None:
        held = self.held.get(lost.sequence_id)
        if held is None or held.generation != lost.generation:
            return None  # not ours any more (rule D2)
        held.state = types.SEQUENCE_STATE_LOST
        held.computed_tokens = 0
        return Recompute(lost.sequence_id, (lost.generation.term, lost.generation.counter), lost.message)

    def _preempted(self, told: pb.Preemption) -> Preemption | None:
        if not self._is_mine(told.sequence_id, told.generation):
            return None
        self.held[told.sequence_id].state = types.SEQUENCE_STATE_LOST
        generation = (told.generation.term, told.generation.counter)
        return Preemption(told.sequence_id, generation, told.keep_state, told.message)

    def _is_mine(self, sequence_id: str, generation: types.Generation) -> bool:
        held = self.held.get(sequence_id)
        return held is not None and held.generation == generation

    def _cancelled(self, sequence_id: str) -> bool:
        self._lane_of.pop(sequence_id, None)
        return self.waiting.pop(sequence_id, None) is not None or sequence_id in self.held

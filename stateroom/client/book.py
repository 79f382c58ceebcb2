"""An executor's own book of its session: what it holds, what waits, what it has yet to say.

Pure (no I/O, no clock): `request` makes the next message; `stateroom.client.answers.hear` takes an
answer in. The book is what
makes a broken stream harmless: `whole_list` says everything again (rule D5).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stateroom.client.decisions import Decisions, Rejection
from stateroom.client.held import HeldSequence
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types

__all__ = ["SessionBook"]

TRANSFERS = {
    "started": pb.TRANSFER_EVENT_STARTED,
    "completed": pb.TRANSFER_EVENT_COMPLETED,
    "failed": pb.TRANSFER_EVENT_FAILED,
}


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
        self.lane_of: dict[str, int] = {}
        self.verdict_of_lane: dict[int, tuple[str, str]] = {}
        self._delta_number = 0
        self.facts = pb.StepRequest()
        self.heard = Decisions(0)

    # ---- facts ----

    def submit(self, arrival: pb.Arrival) -> None:
        """A new sequence."""
        self.facts.arrivals.append(arrival)
        if (
            arrival.sequence_id not in self.held
        ):  # a used id is the scheduler's to reject; the first stays ours
            self.waiting.setdefault(arrival.sequence_id, arrival)

    def reject_here(self, sequence_id: str, fault: str) -> None:
        """A submission that no message can carry: the same typed rejection, from here."""
        rejection = Rejection(sequence_id, "INVALID_REQUEST", f"{fault}: give 0 or more", 0)
        self.heard.rejections += (rejection,)

    def finish(
        self, sequence_id: str, last_step: int | None, output_tokens: int, keep_as_cache: bool = False
    ) -> None:
        """Let go of a held sequence; its slot is reusable once `last_step` is reported done (rule C2)."""
        held = self._hold(sequence_id)
        last = self.step if last_step is None else last_step
        self.facts.finishes.add(
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
            self.facts.cancels.append(sequence_id)
        elif sequence_id in self.held:
            held = self.held[sequence_id]
            if held.state in (types.SEQUENCE_STATE_TRANSFER_IN, types.SEQUENCE_STATE_TRANSFER_OUT):
                held.cancelled = True  # ends when its transfer does: someone may write until then
                self.facts.cancels.append(sequence_id)
            else:
                self.finish(sequence_id, None, 0)

    def transfer(self, sequence_id: str, event: str) -> None:
        """A state transfer started, completed or failed."""
        held = self._hold(sequence_id)
        self.facts.transfers.add(sequence_id=sequence_id, generation=held.generation, event=TRANSFERS[event])
        if event == "started":
            held.state = types.SEQUENCE_STATE_TRANSFER_IN
        elif held.cancelled:
            del self.held[sequence_id]
        elif event == "completed" and held.state != types.SEQUENCE_STATE_TRANSFER_OUT:
            held.state = types.SEQUENCE_STATE_DECODE
            held.computed_tokens = held.arrival.prompt_tokens
        else:
            del self.held[sequence_id]

    def suspend(self, sequence_id: str, suspended: bool) -> None:
        """It pauses or goes on; its slot stays."""
        held = self._hold(sequence_id)
        self.facts.suspensions.add(sequence_id=sequence_id, generation=held.generation, suspended=suspended)
        going_on = (
            types.SEQUENCE_STATE_CONTEXT
            if held.computed_tokens < held.arrival.prompt_tokens
            else types.SEQUENCE_STATE_DECODE
        )
        held.state = types.SEQUENCE_STATE_SUSPENDED if suspended else going_on

    def decline(self, sequence_id: str, why: str) -> None:
        """A grant that the engine will not start now; it waits with reason ENGINE until `ready`."""
        held = self.held.pop(sequence_id)
        self.facts.grant_answers.add(sequence_id=sequence_id, generation=held.generation, declined=why)
        held.arrival.engine_hold = why
        self.waiting[sequence_id] = held.arrival

    def ready(self, sequence_id: str) -> None:
        """The engine is ready now for one it declined or held back."""
        self.waiting[sequence_id].engine_hold = ""
        self.facts.ready.append(sequence_id)

    def let_go(self, sequence_id: str, last_step: int | None, state_kept: bool = False) -> None:
        """Answer to a recompute or a preemption."""
        held = self._hold(sequence_id)
        last = self.step if last_step is None else last_step
        self.facts.let_go.add(
            sequence_id=sequence_id, generation=held.generation, last_step=last, state_kept=state_kept
        )
        self._fence(sequence_id, held, types.SEQUENCE_STATE_LOST, last)

    def preempted(self, sequence_id: str, last_step: int | None, state_kept: bool) -> None:
        """The engine stopped it by itself; it waits again, in its place."""
        held = self._hold(sequence_id)
        last = self.step if last_step is None else last_step
        self.facts.preempted.add(
            sequence_id=sequence_id, generation=held.generation, last_step=last, state_kept=state_kept
        )
        self._fence(sequence_id, held, types.SEQUENCE_STATE_LOST, last)

    def all_states_void(self, last_step: int | None) -> None:
        """No state is valid any more: every held sequence waits again, in its place."""
        last = self.step if last_step is None else last_step
        self.facts.all_states_void.last_step = last
        for name, held in [(n, h) for n, h in self.held.items() if h.handles]:  # demand 0 has no state
            cached = held.state == types.SEQUENCE_STATE_CACHED
            self._fence(
                name, held, types.SEQUENCE_STATE_RETIRING if cached else types.SEQUENCE_STATE_LOST, last
            )

    def demand(self, sequence_id: str, demand: int) -> None:
        """A waiting sequence needs another number of slots."""
        self.waiting[sequence_id].demand = demand
        self.facts.demand_changes.add(sequence_id=sequence_id, demand=demand)

    def progress(self, sequence_id: str, computed_tokens: int) -> None:
        """How far a context is, where the engine plans its chunks."""
        held = self._hold(sequence_id)
        held.computed_tokens = computed_tokens
        if computed_tokens >= held.arrival.prompt_tokens:
            held.state = types.SEQUENCE_STATE_DECODE
        self.facts.progress.add(
            sequence_id=sequence_id, generation=held.generation, computed_tokens=computed_tokens
        )

    def kv_pages(self, page_tokens: int, total_pages: int, free_pages: int) -> None:
        """The engine's KV pages now."""
        self.facts.kv_pages.CopyFrom(
            pb.KvPages(page_tokens=page_tokens, total_pages=total_pages, free_pages=free_pages)
        )

    def attached(self, rank: int, boot_id: str) -> None:
        """A worker mapped a pool."""
        self._attached[rank] = boot_id
        self.facts.attached.add(rank=rank, boot_id=boot_id)

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
        message, self.facts = self.facts, pb.StepRequest()
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
        self.facts = pb.StepRequest()
        self._delta_number += 1
        listed = pb.SessionList(waiting=self.waiting.values())
        states = [(held, held.listed_state) for held in self.held.values()]
        states += [(fenced.held, fenced.held.state) for fenced in self._fenced.values()]
        for held, state in states:
            listed.held.add(
                arrival=held.arrival,
                handles=held.handles,
                state=state,
                computed_tokens=held.computed_tokens,
                last_step=held.last_step,
            )
        message = pb.StepRequest(
            session_id=self.session_id,
            delta_number=self._delta_number,
            completed_step=self.completed_step,
            list=listed,
        )
        message.cancels.extend(name for name, held in self.held.items() if held.cancelled)
        for rank, boot_id in self._attached.items():
            message.attached.add(rank=rank, boot_id=boot_id)
        return message

    def _complete(self, completed_step: int | None) -> None:
        if completed_step is not None:
            self.completed_step = max(self.completed_step, min(completed_step, self.step))
        for name, fenced in list(self._fenced.items()):
            if fenced.last_step <= self.completed_step:
                del self._fenced[name]
                if fenced.held.state == types.SEQUENCE_STATE_LOST and not fenced.held.cancelled:
                    self.waiting[name] = fenced.held.arrival

    # ---- what was heard ----

    def take(self, step: int, *, away: bool = False) -> Decisions:
        """What was heard since the last take."""
        heard, self.heard = self.heard, Decisions(0)
        heard.step, heard.away = step, away
        return heard

    def reason_of(self, sequence_id: str) -> str | None:
        """Why a waiting sequence waits, as last told."""
        return self._verdict(sequence_id)[0] or None

    def detail_of(self, sequence_id: str) -> str:
        """What stands behind the reason."""
        return self._verdict(sequence_id)[1]

    def _verdict(self, sequence_id: str) -> tuple[str, str]:
        lane = self.lane_of.get(sequence_id) if sequence_id in self.waiting else None
        return self.verdict_of_lane.get(lane, ("", "")) if lane is not None else ("", "")

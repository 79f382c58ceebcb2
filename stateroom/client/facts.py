"""What an executor says of its sequences: the same calls on the asyncio and on the sync session.

Nothing is sent by them: facts go out with the next `step` or `flush`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stateroom.client.book import SessionBook
from stateroom.client.held import HeldSequence
from stateroom.v1 import scheduler_service_pb2 as pb
from stateroom.v1 import types_pb2 as types

__all__ = ["FactsMixin"]


KINDS = {
    "context": types.SEQUENCE_KIND_CONTEXT,
    "generation_init": types.SEQUENCE_KIND_GENERATION_INIT,
    "context_only": types.SEQUENCE_KIND_CONTEXT_ONLY,
}


class FactsMixin:
    """Needs `_book`."""

    _book: SessionBook

    def submit(
        self,
        sequence_id: str,
        prompt_tokens: int,
        max_output_tokens: int,
        *,
        kind: str = "context",
        demand: int = 1,
        priority: int = 0,
        tenant: str = "",
        deadline_ms: int = 0,
        chunk_boundaries: Sequence[int] = (),
        traceparent: str = "",
        engine_hold: str = "",
    ) -> None:
        """A new sequence. `kind`: context, generation_init (its state arrives by transfer) or context_only.

        `deadline_ms` is its longest wait (0: the group's), `chunk_boundaries` prompt positions at which a
        chunk has to end, `engine_hold` the engine's word while it is not ready for it (see `ready`).
        """
        if min(prompt_tokens, max_output_tokens, demand, deadline_ms) < 0:  # does not even fit in a message
            self._book.reject_here(
                sequence_id, f"a length, the demand or the deadline of {sequence_id} is negative"
            )
            return
        self._book.submit(
            pb.Arrival(
                sequence_id=sequence_id,
                kind=KINDS[kind],
                prompt_tokens=prompt_tokens,
                max_output_tokens=max_output_tokens,
                demand=demand,
                priority=priority,
                tenant=tenant,
                deadline_ms=deadline_ms,
                chunk_boundaries=chunk_boundaries,
                traceparent=traceparent,
                engine_hold=engine_hold,
            )
        )

    def finish(
        self,
        sequence_id: str,
        *,
        last_step: int | None = None,
        output_tokens: int = 0,
        keep_as_cache: bool = False,
    ) -> None:
        """It ended. `last_step`: the last step issued that touches its slot; default the last one asked.

        `keep_as_cache` leaves its state in the slot until the slot is needed: `Decisions.reclaim`.
        """
        self._book.finish(sequence_id, last_step, output_tokens, keep_as_cache)

    def cancel(self, sequence_id: str) -> None:
        """End it, waiting or held. Harmless if it has ended."""
        self._book.cancel(sequence_id)

    def transfer(self, sequence_id: str, event: str) -> None:
        """Its state transfer started, completed or failed."""
        self._book.transfer(sequence_id, event)

    def suspend(self, sequence_id: str) -> None:
        """It pauses and keeps its slot."""
        self._book.suspend(sequence_id, True)

    def resume(self, sequence_id: str) -> None:
        """It goes on."""
        self._book.suspend(sequence_id, False)

    def decline(self, sequence_id: str, why: str) -> None:
        """A grant the engine will not start now; it waits with reason ENGINE until `ready`."""
        self._book.decline(sequence_id, why)

    def ready(self, sequence_id: str) -> None:
        """The engine is ready for one it declined or held back."""
        self._book.ready(sequence_id)

    def let_go(self, sequence_id: str, *, last_step: int | None = None, state_kept: bool = False) -> None:
        """Answer to a recompute or a preemption: no step after `last_step` touches its old slot."""
        self._book.let_go(sequence_id, last_step, state_kept)

    def preempted(self, sequence_id: str, *, last_step: int | None = None, state_kept: bool = False) -> None:
        """The engine stopped it by itself; it waits again, in its place (rule A11)."""
        self._book.preempted(sequence_id, last_step, state_kept)

    def all_states_void(self, *, last_step: int | None = None) -> None:
        """Weights changed or the engine slept: everything held is computed again, in its place."""
        self._book.all_states_void(last_step)

    def change_demand(self, sequence_id: str, demand: int) -> None:
        """A waiting sequence needs another number of slots."""
        self._book.demand(sequence_id, demand)

    def progress(self, sequence_id: str, computed_tokens: int) -> None:
        """How far a context is; for sessions whose engine plans its own chunks."""
        self._book.progress(sequence_id, computed_tokens)

    def kv_pages(self, *, page_tokens: int, total_pages: int, free_pages: int) -> None:
        """The engine's KV pages; once reported, the session is held to them (reason KV_PAGES)."""
        self._book.kv_pages(page_tokens, total_pages, free_pages)

    def attached(self, rank: int, boot_id: str) -> None:
        """The worker of this rank mapped the pool with this boot id."""
        self._book.attached(rank, boot_id)

    def wait_reasons(self) -> dict[str, str]:
        """Every waiting sequence with its reason as last told; RANK_PENDING until told."""
        return {name: self._book.reason_of(name) or "RANK_PENDING" for name in self._book.waiting}

    def wait_reason(self, sequence_id: str) -> str | None:
        """Why one sequence waits, None if it does not."""
        return self._book.reason_of(sequence_id)

    def wait_detail(self, sequence_id: str) -> str:
        """The rank, tenant or number behind its reason, as last told."""
        return self._book.detail_of(sequence_id)

    @property
    def held(self) -> Mapping[str, HeldSequence]:
        """Sequences that hold slots."""
        return self._book.held

    @property
    def waiting(self) -> frozenset[str]:
        """Ids that wait."""
        return frozenset(self._book.waiting)

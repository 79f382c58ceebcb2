"""What an executor says of its sequences: the same calls on the asyncio and on the sync session.

Nothing is sent by them: facts go out with the next `step` or `flush`.
"""

from __future__ import annotations

from collections.abc import Mapping

from stateroom.client.book import HeldSequence, SessionBook

__all__ = ["FactsMixin"]


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
        traceparent: str = "",
        engine_hold: str = "",
    ) -> None:
        """A new sequence. `kind`: context, generation_init (its state arrives by transfer) or context_only."""
        self._book.submit(
            sequence_id, prompt_tokens, max_output_tokens, kind, demand, priority, traceparent, engine_hold
        )

    def finish(self, sequence_id: str, *, last_step: int | None = None, output_tokens: int = 0) -> None:
        """It ended. `last_step`: the last step issued that touches its slot; default the last one asked."""
        self._book.finish(sequence_id, last_step, output_tokens)

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

    def let_go(self, sequence_id: str, *, last_step: int | None = None) -> None:
        """Answer to a recompute: no step after `last_step` touches its old slot."""
        self._book.let_go(sequence_id, last_step)

    def attached(self, rank: int, boot_id: str) -> None:
        """The worker of this rank mapped the pool with this boot id."""
        self._book.attached(rank, boot_id)

    def wait_reasons(self) -> dict[str, str]:
        """Every waiting sequence with its reason as last told; RANK_PENDING until told."""
        return {name: self._book.reason_of(name) or "RANK_PENDING" for name in self._book.waiting}

    def wait_reason(self, sequence_id: str) -> str | None:
        """Why one sequence waits, None if it does not."""
        return self._book.reason_of(sequence_id)

    @property
    def held(self) -> Mapping[str, HeldSequence]:
        """Sequences that hold slots."""
        return self._book.held

    @property
    def waiting(self) -> frozenset[str]:
        """Ids that wait."""
        return frozenset(self._book.waiting)

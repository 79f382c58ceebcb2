"""The stand-in for a model: computes by stamps in every layer's view of a sequence's row on every rank.

A chunk or a token is: the stamp of the last step is there, the next one is written. Anything else is a
fault, counted in the tally with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stateroom.client import Chunk, Grant
from stateroom_ops.replay_pools import ReplayPools
from stateroom_ops.replay_rows import DecodingRows
from stateroom_ops.replay_tally import ReplayTally
from stateroom_ops.stamps import Rows, id_hash

__all__ = ["StampingModel"]


@dataclass(slots=True)
class _Resident:
    slots: tuple[int, ...]
    output_tokens: int


class StampingModel:
    """Residents and their work. `len()` is the number of residents."""

    def __init__(self, pools: ReplayPools, tally: ReplayTally) -> None:
        self._pools = pools
        self._tally = tally
        self._residents: dict[str, _Resident] = {}
        self._decoding = DecodingRows()

    def __len__(self) -> int:
        return len(self._residents)

    @property
    def decoding_count(self) -> int:
        """Residents that make a token a step."""
        return len(self._decoding)

    def start(self, grant: Grant, output_tokens: int, *, check: bool) -> None:
        """A new resident; `check`: its row must be of the attached pools and zero."""
        for fault in self._pools.faults_of_grant(grant) if check else ():
            self._tally.fail(fault)
        self._residents[grant.sequence_id] = _Resident(tuple(h.slot for h in grant.handles), output_tokens)

    def stop(self, name: str) -> bool:
        """It runs no more; False if it did not run."""
        self._decoding.leave(name)
        return self._residents.pop(name, None) is not None

    def prefill(self, chunks: Sequence[Chunk]) -> None:
        """Computes the chunks of residents; one whose prompt is complete decodes from the next step on."""
        present = [chunk for chunk in chunks if chunk.sequence_id in self._residents]
        for chunk in chunks:
            if chunk.sequence_id not in self._residents:
                self._tally.fail(f"{chunk.sequence_id}: a chunk came for a sequence that holds no slot here")
        later = [chunk for chunk in present if chunk.start]
        if later:
            self._check(*self._rows(later, lambda chunk: chunk.start))
        if present:
            self._pools.write(self._rows(present, lambda chunk: chunk.start + chunk.tokens)[0])
        for chunk in present:
            self._tally.tokens_context += chunk.tokens
            if chunk.last:
                resident = self._residents[chunk.sequence_id]
                tokens = chunk.start + chunk.tokens
                self._decoding.join(chunk.sequence_id, resident.slots, tokens, resident.output_tokens)

    def decode(self) -> list[tuple[str, int]]:
        """One token for each that decodes; those that are done, with the tokens they made."""
        if not len(self._decoding):
            return []
        self._check(self._decoding.rows, self._decoding.row_names)
        self._tally.tokens_generated += len(self._decoding)
        done = self._decoding.advance()
        self._pools.write(self._decoding.rows)
        ended = [(name, self._residents[name].output_tokens) for name in done]
        for name in done:
            self.stop(name)
        return ended

    def _rows(self, chunks: Sequence[Chunk], count: Callable[[Chunk], int]) -> tuple[Rows, list[str]]:
        each = [(chunk, slot) for chunk in chunks for slot in self._residents[chunk.sequence_id].slots]
        names = [chunk.sequence_id for chunk, _ in each]
        rows = Rows.of(
            [slot for _, slot in each], [id_hash(name) for name in names], [count(chunk) for chunk, _ in each]
        )
        return rows, names

    def _check(self, rows: Rows, names: list[str]) -> None:
        for fault in self._pools.faults_of_rows(rows, names):
            self._tally.fail(fault)

"""The terms of a rank's sum from what it holds: one place for plans and services (rule B4)."""

from __future__ import annotations

from dataclasses import dataclass

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.model import ModelShape
from stateroom.residency.rank_state import RankState
from stateroom.residency.sizing import Guarantee, SizingTerms

__all__ = ["SequenceLength", "rank_terms"]


@dataclass(frozen=True, slots=True)
class SequenceLength:
    """What `full_length` is sized on: tokens = max_seq_len + extra + draft + 1, in whole pages.

    `max_seq_len` None takes the model's own. Never an average (section 5).
    """

    max_seq_len: int | None = None
    extra_tokens: int = 0
    draft_tokens: int = 0
    page_tokens: int = 16

    def tokens(self, model: ModelShape) -> int:
        """Tokens before rounding. Errors: ConfigError where neither flag nor config gives a length."""
        length = self.max_seq_len if self.max_seq_len is not None else model.max_position_embeddings
        if length is None:
            raise ConfigError(
                "max_position_embeddings",
                None,
                "the full_length guarantee is sized on the longest sequence",
                "give --max-seq-len",
            )
        return length + self.extra_tokens + self.draft_tokens + 1


def rank_terms(
    model: ModelShape,
    state: RankState,
    quota_bytes: int,
    reserved_slots: int,
    fixed_bytes: int = 0,
    guarantee: Guarantee = "state",
    length: SequenceLength = SequenceLength(),
    usable: tuple[int, int] = (1, 1),
) -> SizingTerms:
    """S, Q, F, R, K and u of one rank; `reserved_slots` counts all of R, the dummy of attention-DP too.

    Errors: ConfigError of the KV answer, under `full_length` only.
    """
    kv_sequence_bytes = 0
    if guarantee == "full_length":
        kv_sequence_bytes = state.kv_sequence_bytes(length.tokens(model), length.page_tokens)
    return SizingTerms(
        quota_bytes=quota_bytes,
        slot_bytes=state.slot_bytes,
        reserved_slots=reserved_slots,
        fixed_bytes=fixed_bytes,
        kv_sequence_bytes=kv_sequence_bytes,
        usable_numerator=usable[0],
        usable_denominator=usable[1],
        guarantee=guarantee,
    )

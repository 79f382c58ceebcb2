"""The plan of a whole group: every rank's sum, and the agreement over all of them.

The services run the same functions on the same terms, so a plan that says yes can be built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stateroom.residency.agreement import Agreement, agree
from stateroom.residency.answer import Answer, Bounded
from stateroom.residency.config_fields import ConfigError
from stateroom.residency.model import ModelShape
from stateroom.residency.parallel import Parallel
from stateroom.residency.phrases import counted, ranks_text
from stateroom.residency.quantity import format_bytes
from stateroom.residency.rank_state import RankState, StateOptions, rank_state
from stateroom.residency.rank_terms import SequenceLength, rank_terms
from stateroom.residency.sizing import (
    Guarantee,
    SizingTerms,
    built_bytes,
    cap_zero_sentence,
    local_answer,
    raw_slots,
)

__all__ = ["GroupPlan", "PlanRequest", "RankPlan", "plan_group"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is asked of a group. Bytes are a rank's, `quota_bytes` has one entry a rank, in rank order.

    `sequence_slots` is the demand of one sequence (2-5 where an engine keeps checkpoints beside it);
    u, the usable fraction of growable pools, is a ratio of integers. `max_seq_len` None takes the model's.
    """

    model: ModelShape
    quota_bytes: tuple[int, ...]
    max_batch_size: int
    options: StateOptions = field(default_factory=StateOptions)
    tp_size: int = 1
    pp_size: int = 1
    pp_layers: tuple[int, ...] | None = None
    dp_size: int = 1
    cp_size: int = 1
    sequence_slots: int = 1
    reserved_slots: int = 1
    fixed_bytes: int = 0
    guarantee: Guarantee = "state"
    max_seq_len: int | None = None
    extra_tokens: int = 0
    page_tokens: int = 16
    usable_numerator: int = 1
    usable_denominator: int = 1

    def __post_init__(self) -> None:
        Parallel(
            self.tp_size, 0, self.pp_size, 0, self.pp_layers, self.dp_size, self.cp_size
        )  # checks all four
        ranks = self.tp_size * self.pp_size
        if len(self.quota_bytes) != ranks:
            raise ConfigError(
                "--quota",
                len(self.quota_bytes),
                f"the layout has {ranks} ranks",
                "give one quota, or one a rank",
            )
        for flag, value in (
            ("--max-batch-size", self.max_batch_size),
            ("--slots-per-sequence", self.sequence_slots),
            ("--reserved", self.reserved_slots),
            ("--page-tokens", self.page_tokens),
            ("--max-seq-len", self.max_seq_len if self.max_seq_len is not None else 1),
        ):
            if value < 1:
                raise ConfigError(flag, value, "at least 1 is needed", "give 1 or more")

    @property
    def asked(self) -> int:
        """Slots for everything that may run: max batch size x stages in flight x slots a sequence."""
        return self.max_batch_size * self.pp_size * self.sequence_slots

    @property
    def reserved_by_name(self) -> Mapping[str, int]:
        """Every reserved row by what it is for; they add up to R."""
        dummies = self.parallel(0).extra_reserved_slots
        return {
            "padding (row 0)": 1,
            **({"reserved by the engine": self.reserved_slots - 1} if self.reserved_slots > 1 else {}),
            **({"dummy of attention data parallelism": dummies} if dummies else {}),
        }

    @property
    def length(self) -> SequenceLength:
        """The longest sequence, with everything a sequence may hold beside it."""
        return SequenceLength(
            self.max_seq_len, self.extra_tokens, self.options.draft_tokens, self.page_tokens
        )

    @property
    def sequence_tokens(self) -> int:
        """Tokens of one full-length sequence, before rounding to pages (section 5)."""
        return self.length.tokens(self.model)

    def parallel(self, rank: int) -> Parallel:
        """Where a rank stands."""
        pp_rank, tp_rank = divmod(rank, self.tp_size)
        return Parallel(
            self.tp_size, tp_rank, self.pp_size, pp_rank, self.pp_layers, self.dp_size, self.cp_size
        )


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One rank: its terms, its local answer and what it builds of the agreed rows.

    `rows` counts ledger rows, on attention-only ranks too (rule B3); `spare_bytes` is what is left of
    the quota; `unused_slots` what this rank affords beyond the agreed number.
    """

    rank: int
    parallel: Parallel
    state: RankState
    terms: SizingTerms
    local: Answer
    rows: int
    spare_bytes: int
    unused_slots: int


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """All ranks and their agreement. `error` is the one sentence of a cap of 0 (rule B7), else empty."""

    request: PlanRequest
    agreement: Agreement
    ranks: tuple[RankPlan, ...]
    warnings: tuple[str, ...]
    error: str

    @property
    def cap(self) -> int | None:
        """The bound in slots, or None where the group is unbounded."""
        answer = self.agreement.answer
        return answer.slots_count if isinstance(answer, Bounded) else None

    @property
    def rows(self) -> int:
        """Rows of every rank: seats and reserved."""
        return self.agreement.rows(sum(self.request.reserved_by_name.values()))

    @property
    def sequences(self) -> int:
        """Whole sequences that the seats hold."""
        return self.agreement.seats // self.request.sequence_slots


def plan_group(request: PlanRequest) -> GroupPlan:
    """Sizes every rank and agrees. Errors: ConfigError for a config or layout that cannot be sized."""
    reserved = sum(request.reserved_by_name.values())
    # the TP ranks of a stage hold equal shares of the same layers
    by_stage = [
        rank_state(request.model, request.parallel(stage * request.tp_size), request.options)
        for stage in range(request.pp_size)
    ]
    states = [by_stage[rank // request.tp_size] for rank in range(len(request.quota_bytes))]
    terms = [
        _terms(request, state, quota, reserved)
        for state, quota in zip(states, request.quota_bytes, strict=True)
    ]
    locals_ = {rank: local_answer(each, request.asked) for rank, each in enumerate(terms)}
    agreement = agree(locals_, request.asked)
    ranks = tuple(
        _rank_plan(request, rank, state, each, agreement, reserved)
        for rank, (state, each) in enumerate(zip(states, terms, strict=True))
    )
    error = ""
    if agreement.seats < request.sequence_slots:
        limiting = agreement.limiting_ranks[0]
        error = cap_zero_sentence(limiting, terms[limiting], request.asked, request.sequence_slots)
    return GroupPlan(request, agreement, ranks, _warnings(request, agreement, ranks), error)


def _terms(request: PlanRequest, state: RankState, quota_bytes: int, reserved_slots: int) -> SizingTerms:
    return rank_terms(
        request.model,
        state,
        quota_bytes,
        reserved_slots,
        request.fixed_bytes,
        request.guarantee,
        request.length,
        (request.usable_numerator, request.usable_denominator),
    )


def _rank_plan(
    request: PlanRequest, rank: int, state: RankState, terms: SizingTerms, agreement: Agreement, reserved: int
) -> RankPlan:
    rows = agreement.rows(reserved)
    affordable = raw_slots(terms)
    return RankPlan(
        rank=rank,
        parallel=request.parallel(rank),
        state=state,
        terms=terms,
        local=local_answer(terms, request.asked),
        rows=rows,
        spare_bytes=max(0, terms.quota_bytes - built_bytes(terms, rows)),
        unused_slots=max(0, affordable - agreement.seats) if affordable is not None else 0,
    )


def _warnings(request: PlanRequest, agreement: Agreement, ranks: tuple[RankPlan, ...]) -> tuple[str, ...]:
    """Once each: a clamped batch (scenario S01), flags that override the config, an assumed layer split."""
    found: dict[str, None] = {}
    if isinstance(agreement.answer, Bounded):
        limiting = agreement.limiting_ranks
        quota = format_bytes(min(ranks[rank].terms.quota_bytes for rank in limiting))
        found[
            f"{counted(request.asked, 'slot')} {'is' if request.asked == 1 else 'are'} asked and "
            f"{agreement.answer.slots_count} fit: {ranks_text(limiting)} limit{'s' if len(limiting) == 1 else ''} with {quota}"
        ] = None
    if request.pp_layers is None and request.model.layer_count % request.pp_size:
        split = ",".join(map(str, request.parallel(0).split(request.model.layer_count)))
        found[
            f"{request.model.layer_count} layers do not divide by {request.pp_size} stages: {split} is assumed, "
            f"and engines differ on it; say which with --pp-layers"
        ] = None
    for rank in ranks:
        found.update(dict.fromkeys(rank.state.warnings))
    return tuple(found)

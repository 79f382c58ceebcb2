"""What would raise the cap, computed by planning again and never guessed.

Each remedy carries the changed request, so that anyone can plan it and get exactly the promised answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from stateroom.residency.answer import Answer, Bounded
from stateroom.residency.config_fields import ConfigError
from stateroom.residency.phrases import counted, ranks_text
from stateroom.residency.plan import GroupPlan, PlanRequest, plan_group
from stateroom.residency.pp_split import best_split
from stateroom.residency.quantity import format_bytes
from stateroom.residency.sizing import quota_for

__all__ = ["Remedy", "remedies"]


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change. `flags` are the command-line flags that make it, `promised` the answer it gives.

    `seats` is the promised number of slots, so that remedies can be compared.
    """

    change: str
    flags: tuple[str, ...]
    request: PlanRequest
    promised: Answer
    seats: int

    @property
    def sentence(self) -> str:
        """For people: the change and what it gives."""
        gives = (
            counted(self.seats, "slot") if isinstance(self.promised, Bounded) else f"all {self.seats} asked"
        )
        return f"{self.change}: {gives}"


_Change = tuple[str, tuple[str, ...], PlanRequest]


def remedies(plan: GroupPlan) -> tuple[Remedy, ...]:
    """Every known change that raises this plan's cap, cheapest kind first; none where it is unbounded."""
    if plan.cap is None:
        return ()
    found: list[Remedy] = []
    for reader in _READERS:
        for change, flags, request in reader(plan):
            try:
                then = plan_group(request)
            except ConfigError:  # heads that the larger TP does not divide: not a remedy
                continue
            if then.agreement.seats > plan.agreement.seats:
                found.append(Remedy(change, flags, request, then.agreement.answer, then.agreement.seats))
    return tuple(found)


def _next_slot(plan: GroupPlan) -> Iterator[_Change]:
    yield _with_quota_for(plan, plan.agreement.seats + 1)


def _all_asked(plan: GroupPlan) -> Iterator[_Change]:
    if plan.request.asked > plan.agreement.seats + 1:
        yield _with_quota_for(plan, plan.request.asked)


def _with_quota_for(plan: GroupPlan, slots_count: int) -> _Change:
    """The least quota on every rank that affords fewer than so many slots; the others keep theirs."""
    needed = [max(rank.terms.quota_bytes, quota_for(rank.terms, slots_count)) for rank in plan.ranks]
    ranks_by_raise: dict[tuple[int, int], list[int]] = {}
    for rank, quota in zip(plan.ranks, needed, strict=True):
        if quota > rank.terms.quota_bytes:
            ranks_by_raise.setdefault((quota - rank.terms.quota_bytes, quota), []).append(rank.rank)
    change = ", ".join(
        f"{format_bytes(more_bytes)} more quota on {ranks_text(ranks)} (then {format_bytes(quota)})"
        for (more_bytes, quota), ranks in ranks_by_raise.items()
    )
    flags = ("--quota", ",".join(f"{rank}={quota}" for rank, quota in enumerate(needed)))
    return change, flags, replace(plan.request, quota_bytes=tuple(needed))


def _narrower_dtypes(plan: GroupPlan) -> Iterator[_Change]:
    state, options = plan.ranks[plan.agreement.limiting_ranks[0]].state, plan.request.options
    for what, flag, dtype in (
        ("SSM", "--ssm-dtype", state.ssm_dtype),
        ("conv", "--conv-dtype", state.conv_dtype),
    ):
        if dtype.dtype == "float32" and not dtype.kernels_fix_it:
            field = flag.removeprefix("--").replace("-", "_")
            changed = replace(options, **{field: "bfloat16"})  # type: ignore[arg-type]
            change = f"{what} state in bfloat16 instead of float32"
            yield change, (flag, "bfloat16"), replace(plan.request, options=changed)


def _other_split(plan: GroupPlan) -> Iterator[_Change]:
    if plan.request.pp_size > 1:
        split = best_split(plan)
        if split is not None:
            now = ",".join(map(str, plan.ranks[0].parallel.split(plan.request.model.layer_count)))
            then = ",".join(map(str, split))
            change = f"layers split {then} instead of {now}, quotas as they are"
            yield change, ("--pp-layers", then), replace(plan.request, pp_layers=split)


def _fewer_draft_tokens(plan: GroupPlan) -> Iterator[_Change]:
    options = plan.request.options
    if options.draft_tokens:
        yield (
            f"no draft tokens instead of {options.draft_tokens}",
            ("--draft-tokens", "0"),
            replace(plan.request, options=replace(options, draft_tokens=0)),
        )


def _shorter_sequences(plan: GroupPlan) -> Iterator[_Change]:
    request = plan.request
    if request.guarantee == "full_length":
        half = max(
            1, (request.sequence_tokens - request.extra_tokens - request.options.draft_tokens - 1) // 2
        )
        yield (
            f"sequences of at most {half} tokens",
            ("--max-seq-len", str(half)),
            replace(request, max_seq_len=half),
        )


def _more_tensor_parallelism(plan: GroupPlan) -> Iterator[_Change]:
    """Twice the ranks, each with the smallest quota there is now."""
    request = plan.request
    quota_bytes = min(request.quota_bytes)
    doubled = replace(
        request,
        tp_size=2 * request.tp_size,
        quota_bytes=(quota_bytes,) * (2 * len(request.quota_bytes)),
    )
    flags = ("--tp", str(doubled.tp_size), "--quota", str(quota_bytes))
    yield (
        f"--tp {doubled.tp_size} with {format_bytes(quota_bytes)} on each of {len(doubled.quota_bytes)} ranks",
        flags,
        doubled,
    )


_READERS: tuple[Callable[[GroupPlan], Iterator[_Change]], ...] = (
    _next_slot,
    _narrower_dtypes,
    _other_split,
    _fewer_draft_tokens,
    _shorter_sequences,
    _all_asked,
    _more_tensor_parallelism,
)

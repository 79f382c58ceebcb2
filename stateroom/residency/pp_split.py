"""The split of layers over pipeline stages that affords the most sequences.

The slot of a stage grows with its recurrent layers only, so an even split by layers is seldom even in
bytes (the heaviest stage binds). Quotas are taken as they are: weights that move with a layer change
them, so the plan says what it assumed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from stateroom.residency.layer_kinds import KvKind
from stateroom.residency.parallel import Parallel
from stateroom.residency.plan import GroupPlan
from stateroom.residency.rank_state import rank_state
from stateroom.residency.sizing import raw_slots

__all__ = ["best_split"]


class _Stages:
    """Sums of bytes over ranges of layers, and what each stage's quota affords of them."""

    def __init__(self, plan: GroupPlan) -> None:
        request = plan.request
        self.layer_count = request.model.layer_count
        slot_bytes, kv_bytes = zip(*_layer_bytes(plan), strict=True)
        self._slot_sums = (0, *accumulate(slot_bytes))
        self._kv_sums = (0, *accumulate(kv_bytes))
        by_stage = [
            plan.ranks[s * request.tp_size : (s + 1) * request.tp_size] for s in range(request.pp_size)
        ]
        # the ranks of a stage have equal slots, so the smallest quota decides
        self._terms = [min((rank.terms for rank in ranks), key=lambda t: t.quota_bytes) for ranks in by_stage]

    def affords(self, stage: int, first: int, end: int, slots_count: int) -> bool:
        """Whether the stage affords so many slots with the layers first .. end - 1."""
        terms = replace(
            self._terms[stage],
            slot_bytes=self._slot_sums[end] - self._slot_sums[first],
            kv_sequence_bytes=self._kv_sums[end] - self._kv_sums[first],
        )
        affordable = raw_slots(terms)
        return affordable is None or affordable >= slots_count

    def fill(self, slots_count: int, layers_max: int) -> tuple[int, ...] | None:
        """From the first stage on as many layers as fit: a longer start never hurts those behind it."""
        split: list[int] = []
        first = 0
        for stage in range(len(self._terms)):
            behind = len(self._terms) - stage - 1
            end = min(first + layers_max, self.layer_count - behind)
            while end > first and not self.affords(stage, first, end, slots_count):
                end -= 1
            if end <= first:
                return None
            split.append(end - first)
            first = end
        return tuple(split) if first == self.layer_count else None


def _layer_bytes(plan: GroupPlan) -> list[tuple[int, int]]:
    """Slot bytes and full-length KV bytes of each layer on one rank of a stage."""
    request = plan.request
    whole = rank_state(request.model, Parallel(tp_size=request.tp_size), request.options)
    slot_bytes = whole.slot_bytes // max(1, whole.recurrent_layers_count)
    full_count = sum(layer.kv is KvKind.FULL for layer in request.model.layers)
    window_count = sum(layer.kv is KvKind.WINDOW for layer in request.model.layers)
    kv_bytes = {KvKind.NONE: 0, KvKind.FULL: 0, KvKind.WINDOW: 0}
    if request.guarantee == "full_length":
        parts = whole.kv_sequence_parts(request.sequence_tokens, request.page_tokens)
        kv_bytes[KvKind.FULL] = parts[0] // max(1, full_count)
        kv_bytes[KvKind.WINDOW] = parts[1] // max(1, window_count)
    return [(slot_bytes if layer.recurrent else 0, kv_bytes[layer.kv]) for layer in request.model.layers]


def best_split(plan: GroupPlan) -> tuple[int, ...] | None:
    """Layers of each stage for the largest cap, the most even such split; None if the cap cannot rise."""
    request = plan.request
    stages = _Stages(plan)
    low, high = plan.agreement.seats, request.asked
    while low < high:  # invariant: low is reachable, high + 1 is not
        middle = (low + high + 1) // 2
        if stages.fill(middle, stages.layer_count) is not None:
            low = middle
        else:
            high = middle - 1
    if low <= plan.agreement.seats:
        return None
    least, most = 1, stages.layer_count
    while least < most:
        middle = (least + most) // 2
        if stages.fill(low, middle) is not None:
            most = middle
        else:
            least = middle + 1
    return stages.fill(low, most)

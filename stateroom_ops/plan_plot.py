"""`stateroom plan --plot`: cap against quota, cap and KV headroom against sequence length, as a PNG.

matplotlib is an optional extra and loaded here only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.plan import GroupPlan, PlanRequest, plan_group
from stateroom.residency.trade import length_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_POINTS = 120
_GIB = 2**30
_STATE, _FULL, _KV, _NOW = "#0072b2", "#d55e00", "#009e73", "#555555"  # told apart without red and green


def draw(request: PlanRequest, path: Path) -> None:
    """Writes the picture. Errors: ConfigError without matplotlib, or if the file cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "--plot",
            str(path),
            "matplotlib is not installed",
            "install it with pip install 'stateroom[plot]'",
        ) from None
    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _cap_by_quota(left, request)
    _cap_by_length(right, request)
    model = request.model
    figure.suptitle(
        f"{model.family} ({model.mechanism}), {model.layer_count} layers, "
        f"tp {request.tp_size}, pp {request.pp_size}, {request.asked} slots asked"
    )
    try:
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise ConfigError(
            "--plot", str(path), f"it cannot be written ({error.strerror})", "give another path"
        ) from None


def _scaled(request: PlanRequest, numerator: int) -> PlanRequest:
    """All quotas x numerator / 60: from nothing to twice what is there."""
    return replace(
        request, quota_bytes=tuple(quota * numerator * 2 // _POINTS for quota in request.quota_bytes)
    )


def _cap_by_quota(axes: Axes, request: PlanRequest) -> None:
    scaled = [_scaled(request, numerator) for numerator in range(1, _POINTS + 1)]
    quotas = [min(each.quota_bytes) / _GIB for each in scaled]
    state = [plan_group(replace(each, guarantee="state")).agreement.seats for each in scaled]
    axes.step(quotas, state, where="post", color=_STATE, label="guarantee state")
    for length in _lengths(request):
        full = [replace(each, guarantee="full_length", max_seq_len=length) for each in scaled]
        seats = [plan_group(each).agreement.seats for each in full]
        axes.step(quotas, seats, where="post", color=_FULL, label=f"full_length, {length} tokens")
        axes.annotate(
            f"{length} tokens", (quotas[-1], seats[-1]), fontsize=8, color=_FULL, ha="right", va="bottom"
        )
    axes.axvline(min(request.quota_bytes) / _GIB, color=_NOW, linestyle=":", label="quota given")
    axes.set(
        xlabel="quota of the smallest rank, GiB",
        ylabel="cap, slots",
        title="cap against quota",
        ylim=(0, None),
    )
    _legend_once(axes)


def _lengths(request: PlanRequest) -> list[int]:
    """Three lengths spread over the table's."""
    rows = [row.max_seq_len for row in length_rows(request) if row.kv_sequence_bytes]
    return sorted({rows[0], rows[len(rows) // 2], rows[-1]}) if rows else []


def _legend_once(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    names = [label.split(",")[0] for label in labels]
    once = dict(zip(names, handles, strict=True))
    axes.legend(list(once.values()), list(once), loc="upper left", fontsize=9)


def _cap_by_length(axes: Axes, request: PlanRequest) -> None:
    rows = [row for row in length_rows(request) if row.kv_sequence_bytes]
    axes.set(xlabel="tokens of one sequence", ylabel="cap, slots", title="cap and KV headroom against length")
    plan = plan_group(replace(request, guarantee="state"))
    if not rows:
        axes.text(0.5, 0.5, "no attention KV to plan", ha="center", transform=axes.transAxes)
        return
    lengths = [row.max_seq_len for row in rows]
    axes.axhline(plan.agreement.seats, color=_STATE, label=f"guarantee state: {plan.agreement.seats}")
    axes.plot(lengths, [row.seats for row in rows], "o-", color=_FULL, label="guarantee full_length")
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, None)
    beside = axes.twinx()
    headroom = [_headroom_gib(plan, row.seats) for row in rows]
    beside.plot(lengths, headroom, "s--", color=_KV, label="KV headroom beside the states of that cap")
    beside.set_ylabel("GiB of the tightest rank left for KV", color=_KV)
    beside.set_ylim(0, None)
    handles, labels = axes.get_legend_handles_labels()
    more_handles, more_labels = beside.get_legend_handles_labels()
    axes.legend(handles + more_handles, labels + more_labels, loc="center right", fontsize=9)


def _headroom_gib(plan: GroupPlan, seats: int) -> float:
    """What the states of so many seats leave of the quota, on the rank that has least left."""
    left = [
        rank.terms.quota_bytes
        - rank.terms.fixed_bytes
        - (seats + rank.terms.reserved_slots) * rank.terms.slot_bytes
        for rank in plan.ranks
    ]
    return max(0, min(left)) / _GIB

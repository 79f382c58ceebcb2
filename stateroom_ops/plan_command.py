"""`stateroom plan`: how many sequences fit, on which rank, and why, before anything starts.

Loads neither torch nor grpc: it answers in the time of a Python start.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Literal

import click

from stateroom.residency.agreement import truncate_warmup
from stateroom.residency.config_fields import ConfigError
from stateroom.residency.model import read_model
from stateroom.residency.plan import PlanRequest, plan_group
from stateroom.residency.quantity import QuantityError, parse_bytes
from stateroom.residency.rank_state import StateOptions
from stateroom.residency.remedies import remedies
from stateroom.residency.trade import length_rows
from stateroom_ops.plan_input import find_config, gpu_quota, parse_fraction, parse_layers, parse_quota

__all__ = ["plan"]


class _Refusal(click.ClickException):
    """One sentence on stderr, exit code 1."""

    def show(self, file: object = None) -> None:
        click.echo(f"stateroom plan: {self.message}", err=True)


@click.command(help="How many sequences fit on every rank, which rank limits, and what would raise it.")
@click.option(
    "--config", required=True, metavar="FILE|PRESET", help="A config.json, its folder, or a preset's name."
)
@click.option("--quota", metavar="BYTES", help="State memory a rank: 24.86GiB, or 0=24GiB,1=20GiB.")
@click.option("--gpu", metavar="CARD|BYTES", help="Compute the quota from a card (h100-80g) and --weights.")
@click.option("--weights", metavar="BYTES", help="Weights of the whole model, shared evenly by all ranks.")
@click.option(
    "--memory-fraction", default="0.9", show_default=True, help="Share of the card to use with --gpu."
)
@click.option("--max-batch-size", type=int, default=256, show_default=True, help="Sequences a step.")
@click.option(
    "--slots-per-sequence", type=int, default=1, show_default=True, help="Slots one sequence needs."
)
@click.option("--tp", "--tp-size", "tp", type=int, default=1, show_default=True, help="Tensor-parallel size.")
@click.option("--pp", "--pp-size", "pp", type=int, default=1, show_default=True, help="Pipeline stages.")
@click.option("--pp-layers", metavar="N,N", help="Layers of each stage; even if not given.")
@click.option("--dp", "--dp-size", "dp", type=int, default=1, show_default=True, help="Attention-DP groups.")
@click.option(
    "--cp", "--cp-size", "cp", type=int, default=1, show_default=True, help="Context-parallel size."
)
@click.option("--reserved", type=int, default=1, show_default=True, help="Rows never bound, row 0 included.")
@click.option(
    "--fixed", default="0", show_default=True, metavar="BYTES", help="Bytes of the quota already spent."
)
@click.option("--draft-tokens", type=int, default=0, show_default=True, help="Speculative tokens a step.")
@click.option(
    "--draft-layout",
    type=click.Choice(["conv_window", "extra_states"]),
    default="conv_window",
    show_default=True,
    help="A wider conv window, or a whole state a draft token.",
)
@click.option("--ssm-dtype", help="Dtype of the recurrent state; the config's if not given.")
@click.option("--conv-dtype", help="Dtype of the conv state; the model's if not given.")
@click.option("--model-dtype", help="Dtype of the model, where the config does not say it.")
@click.option("--kv-dtype", help="Dtype of attention KV; the model's if not given.")
@click.option("--guarantee", type=click.Choice(["state", "full_length"]), default="state", show_default=True)
@click.option("--max-seq-len", type=int, help="Longest sequence; the model's own if not given.")
@click.option("--extra-tokens", type=int, default=0, show_default=True, help="Tokens a sequence beyond that.")
@click.option("--page-tokens", type=int, default=16, show_default=True, help="Tokens of a KV page.")
@click.option(
    "--usable", default="1", show_default=True, help="Usable share of growable pools, full_length only."
)
@click.option("--warmup", metavar="N,N", help="Warm-up batches to truncate to the cap.")
@click.option("--json", "as_json", is_flag=True, help="The document of stateroom_ops/schemas/plan.v1.json.")
@click.option("--plot", metavar="FILE.png", help="Draw cap and KV headroom against quota and length.")
def plan(config: str, as_json: bool, plot: str | None, warmup: str | None, **flags: object) -> None:
    """The command; a cap of 0 or a config that cannot be sized is one sentence and exit code 1."""
    try:
        request = _request(config, **flags)  # type: ignore[arg-type]
        found = plan_group(request)
        batches = _batches(warmup)
        answer = (
            found,
            remedies(found),
            length_rows(request),
            (batches, truncate_warmup(batches, found.agreement.seats)),
        )
        if plot is not None:
            from stateroom_ops.plan_plot import draw

            draw(request, Path(plot))
    except (ConfigError, QuantityError) as error:
        raise _Refusal(str(error)) from None
    if as_json:
        import json

        from stateroom_ops.plan_json import plan_document

        click.echo(json.dumps(plan_document(*answer), indent=2))
    else:
        from stateroom_ops.plan_table import plan_text

        click.echo(plan_text(*answer))
    if found.error:
        raise _Refusal(found.error)


def _batches(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError("--warmup", text, "batch sizes are needed", "write them as 1,2,4,8")
    return tuple(int(part) for part in parts)


def _request(
    config: str,
    *,
    quota: str | None,
    gpu: str | None,
    weights: str | None,
    memory_fraction: str,
    max_batch_size: int,
    slots_per_sequence: int,
    tp: int,
    pp: int,
    pp_layers: str | None,
    dp: int,
    cp: int,
    reserved: int,
    fixed: str,
    draft_tokens: int,
    draft_layout: Literal["conv_window", "extra_states"],
    ssm_dtype: str | None,
    conv_dtype: str | None,
    model_dtype: str | None,
    kv_dtype: str | None,
    guarantee: Literal["state", "full_length"],
    max_seq_len: int | None,
    extra_tokens: int,
    page_tokens: int,
    usable: str,
) -> PlanRequest:
    usable_fraction: Fraction = parse_fraction("--usable", usable)
    return PlanRequest(
        model=read_model(find_config(config)),
        quota_bytes=_quotas(quota, gpu, weights, memory_fraction, max(1, tp) * max(1, pp)),
        max_batch_size=max_batch_size,
        options=StateOptions(ssm_dtype, conv_dtype, model_dtype, kv_dtype, draft_tokens, draft_layout),
        tp_size=tp,
        pp_size=pp,
        pp_layers=parse_layers(pp_layers),
        dp_size=dp,
        cp_size=cp,
        sequence_slots=slots_per_sequence,
        reserved_slots=reserved,
        fixed_bytes=parse_bytes(fixed),
        guarantee=guarantee,
        max_seq_len=max_seq_len,
        extra_tokens=extra_tokens,
        page_tokens=page_tokens,
        usable_numerator=usable_fraction.numerator,
        usable_denominator=usable_fraction.denominator,
    )


def _quotas(
    quota: str | None, gpu: str | None, weights: str | None, fraction: str, ranks: int
) -> tuple[int, ...]:
    if quota is not None and gpu is not None:
        raise ConfigError("--quota", quota, "--gpu gives one too", "give one of the two")
    if quota is not None:
        return parse_quota(quota, ranks)
    if gpu is None:
        raise ConfigError(
            "--quota", None, "nothing says how much memory there is", "give --quota, or --gpu and --weights"
        )
    return (gpu_quota(gpu, weights, parse_fraction("--memory-fraction", fraction), ranks),) * ranks


if __name__ == "__main__":
    plan()

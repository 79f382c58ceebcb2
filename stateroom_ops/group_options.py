"""The flags of a local group, shared by `up`, `replay` and `demo`, and their one validation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from stateroom.channel import AddressError
from stateroom.residency.config_fields import ConfigError
from stateroom.residency.quantity import QuantityError, parse_bytes
from stateroom_ops.group_settings import DEFAULT_PRESET, GroupSettings, twin_config
from stateroom_ops.plan_input import find_config, parse_layers, parse_quota
from stateroom_ops.run_dir import base_dir

__all__ = ["GROUP_FLAGS", "group_options", "settings_from"]

TWIN = "twin"

_OPTIONS = [
    click.option("--config", default=TWIN, show_default=True, metavar="FILE|PRESET", help=f"A config.json, its folder, a preset's name, or `{TWIN}`: a small {DEFAULT_PRESET}."),
    click.option("--tp", "--tp-size", "tp", type=click.IntRange(1), default=1, show_default=True, help="Tensor-parallel size."),
    click.option("--pp", "--pp-size", "pp", type=click.IntRange(1), default=2, show_default=True, help="Pipeline stages."),
    click.option("--pp-layers", metavar="N,N", help="Layers of each stage; even if not given."),
    click.option("--quota", default="64MiB", show_default=True, metavar="BYTES", help="State memory a rank: 24.86GiB, or 0=24GiB,1=20GiB."),
    click.option("--fixed", default="0", show_default=True, metavar="BYTES", help="Bytes of the quota taken before any slot."),
    click.option("--reserved", type=click.IntRange(1), default=1, show_default=True, help="Rows never bound, row 0 included."),
    click.option("--ssm-dtype", help="dtype of the recurrent state; the config's if not given."),
    click.option("--conv-dtype", help="dtype of the convolution state; the config's if not given."),
    click.option("--draft-tokens", type=click.IntRange(0), default=0, show_default=True, help="Draft tokens in the convolution window."),
    click.option("--guarantee", type=click.Choice(["state", "full_length"]), default="state", show_default=True, help="What the quota has to cover for every sequence."),
    click.option("--max-batch-size", type=click.IntRange(1), default=64, show_default=True, help="Sequences in one micro-batch; asked = this x --pp."),
    click.option("--max-tokens", type=click.IntRange(1), default=8192, show_default=True, help="Tokens of one step."),
    click.option("--max-seq-len", type=click.IntRange(1), help="Longest sequence; the config's max_position_embeddings if not given."),
    click.option("--chunk-unit", type=click.IntRange(1), default=64, show_default=True, help="A context chunk is a multiple of it."),
    click.option("--warmup", default="", metavar="N,N", help="Warm-up batches, told truncated to the cap."),
    click.option("--policy", type=click.Choice(["best_effort", "strict"]), default="best_effort", show_default=True, help="May a later sequence pass one that does not fit?"),
    click.option("--name", help="Name of the group and of its folder."),
    click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder of groups; default $XDG_RUNTIME_DIR/stateroom."),
]  # fmt: skip
GROUP_FLAGS = (
    "config", "tp", "pp", "pp_layers", "quota", "fixed", "reserved", "ssm_dtype", "conv_dtype", "draft_tokens",
    "guarantee", "max_batch_size", "max_tokens", "max_seq_len", "chunk_unit", "warmup", "policy", "name", "run_dir",
)  # fmt: skip


def group_options(run: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in the order of --help."""
    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def settings_from(
    default_name: str,
    *,
    config: str,
    tp: int,
    pp: int,
    pp_layers: str | None,
    quota: str,
    fixed: str,
    reserved: int,
    ssm_dtype: str | None,
    conv_dtype: str | None,
    draft_tokens: int,
    guarantee: Literal["state", "full_length"],
    max_batch_size: int,
    max_tokens: int,
    max_seq_len: int | None,
    chunk_unit: int,
    warmup: str,
    policy: str,
    name: str | None,
    run_dir: Path | None,
) -> GroupSettings:
    """The settings, planned once before anything starts; ClickException with one sentence else."""
    if name is not None and (not name.replace("-", "").replace("_", "").isalnum() or len(name) > 40):
        raise click.ClickException(f"--name is {name!r}: use up to 40 letters, digits, '-' and '_'")
    try:
        settings = GroupSettings(
            config=twin_config() if config == TWIN else find_config(config),
            quota_bytes=parse_quota(quota, tp * pp),
            run_dir=(run_dir or base_dir()).absolute() / (name or default_name),
            name=name or default_name,
            tp_size=tp,
            pp_size=pp,
            pp_layers=parse_layers(pp_layers),
            max_batch_size=max_batch_size,
            max_tokens=max_tokens,
            chunk_unit=chunk_unit,
            max_seq_len=max_seq_len,
            reserved=reserved,
            fixed_bytes=parse_bytes(fixed),
            ssm_dtype=ssm_dtype,
            conv_dtype=conv_dtype,
            draft_tokens=draft_tokens,
            guarantee=guarantee,
            warmup=warmup,
            policy=policy,
        )
        settings.check()
        planned = settings.plan()
    except (ConfigError, QuantityError, AddressError) as error:
        raise click.ClickException(str(error)) from None
    if planned.error:
        raise click.ClickException(planned.error)
    return settings

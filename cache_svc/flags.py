"""Command line of a cache service, validated once; one sentence for a bad value, exit code 2."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from cache_svc.settings import Settings
from stateroom.channel import AddressError, check_listen_address
from stateroom.residency.config_fields import ConfigError
from stateroom.residency.config_file import load_config
from stateroom.residency.model import read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.quantity import QuantityError, parse_bytes
from stateroom.residency.rank_state import StateOptions, rank_state
from stateroom.residency.rank_terms import SequenceLength, rank_terms
from stateroom.residency.sizing import cap_zero_sentence, raw_slots

__all__ = ["options", "settings_from"]


def _bytes(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except QuantityError as error:
        raise click.BadParameter(str(error)) from None


def _layers(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of layer counts: write it as 20,22,22")
    return tuple(int(part) for part in parts)


_OPTIONS = [
    click.option("--config", type=click.Path(path_type=Path), required=True, help="The model's Hugging Face config.json."),
    click.option("--quota", callback=_bytes, required=True, help="Memory this rank may take, e.g. 24.86GiB."),
    click.option("--fixed", callback=_bytes, default="0", show_default=True, help="Bytes of the quota taken before any slot."),
    click.option("--listen", multiple=True, required=True, help="Where to serve: unix:/path or host:port. May be repeated."),
    click.option("--tp-size", type=int, default=1, show_default=True, help="Tensor-parallel size."),
    click.option("--tp-rank", type=int, default=0, show_default=True, help="Tensor-parallel rank."),
    click.option("--pp-size", type=int, default=1, show_default=True, help="Pipeline-parallel size."),
    click.option("--pp-rank", type=int, default=0, show_default=True, help="Pipeline-parallel rank."),
    click.option("--pp-layers", callback=_layers, default=None, help="Layers of each stage, e.g. 20,22,22; default even."),
    click.option("--reserved", type=click.IntRange(1), default=1, show_default=True, help="Rows never bound: padding, dummies."),
    click.option("--ssm-dtype", default=None, help="dtype of the recurrent state; default from the config."),
    click.option("--conv-dtype", default=None, help="dtype of the convolution state; default from the config."),
    click.option("--draft-tokens", type=click.IntRange(0), default=0, show_default=True, help="Draft tokens in the convolution window."),
    click.option("--guarantee", type=click.Choice(["state", "full_length"]), default="state", show_default=True, help="What the quota has to cover for every sequence."),
    click.option("--max-seq-len", type=click.IntRange(1), default=None, help="For full_length; default the config's maximum."),
    click.option("--page-tokens", type=click.IntRange(1), default=16, show_default=True, help="Tokens of a KV page, for full_length."),
    click.option("--descriptor-socket", type=click.Path(path_type=Path), default=None, help="Socket that passes the pool to workers; default beside --listen."),
    click.option("--state-dir", type=click.Path(path_type=Path), default=None, help="Where the highest term is kept; default beside --listen."),
    click.option("--trace-file", type=click.Path(path_type=Path), default=None, help="JSON lines of spans, where OTEL_EXPORTER_OTLP_ENDPOINT is not set."),
]  # fmt: skip


def options(run: click.decorators.FC) -> click.decorators.FC:
    """All flags, in the order of --help."""
    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def settings_from(flags: dict[str, Any]) -> Settings:
    """Checks what single flags cannot; click.UsageError says what is wrong in one sentence."""
    try:
        parallel = Parallel(
            tp_size=flags["tp_size"],
            tp_rank=flags["tp_rank"],
            pp_size=flags["pp_size"],
            pp_rank=flags["pp_rank"],
            pp_layers=flags["pp_layers"],
        )
        model = read_model(load_config(flags["config"]))
        state = rank_state(
            model,
            parallel,
            StateOptions(
                ssm_dtype=flags["ssm_dtype"],
                conv_dtype=flags["conv_dtype"],
                draft_tokens=flags["draft_tokens"],
            ),
        )
        terms = rank_terms(
            model,
            state,
            quota_bytes=flags["quota"],
            reserved_slots=flags["reserved"],
            fixed_bytes=flags["fixed"],
            guarantee=flags["guarantee"],
            length=SequenceLength(
                max_seq_len=flags["max_seq_len"],
                draft_tokens=flags["draft_tokens"],
                page_tokens=flags["page_tokens"],
            ),
        )
        for address in flags["listen"]:
            check_listen_address(address)
        home = _home(flags["listen"], parallel.rank)
    except (ConfigError, AddressError) as error:
        raise click.UsageError(str(error)) from None
    if raw_slots(terms) == 0:
        raise click.UsageError(cap_zero_sentence(parallel.rank, terms, 1))
    descriptor_socket: Path = flags["descriptor_socket"] or home / f"rank{parallel.rank}.pool"
    return Settings(
        parallel=parallel,
        state=state,
        terms=terms,
        listen=flags["listen"],
        descriptor_socket=descriptor_socket.absolute(),  # a worker may run in another folder
        state_dir=flags["state_dir"] or home / f"rank{parallel.rank}.state",
        trace_file=flags["trace_file"],
    )


def _home(listen: tuple[str, ...], rank: int) -> Path:
    """The folder of the first unix socket, else one of its own in the temporary folder."""
    for address in listen:
        if address.startswith("unix:"):
            return Path(address.removeprefix("unix:")).parent
    folder = Path(tempfile.gettempdir()) / f"stateroom-rank{rank}"
    with contextlib.suppress(FileNotFoundError):
        if (owner := folder.lstat().st_uid) != os.getuid():
            raise AddressError(
                f"folder {str(folder)!r} belongs to user id {owner}: give --descriptor-socket and --state-dir"
            )
    return folder

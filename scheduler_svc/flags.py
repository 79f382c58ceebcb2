"""Command line of the scheduler, validated once into frozen settings; one sentence for a bad value."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from scheduler_svc.core.settings import GroupSettings, SettingsError
from stateroom.channel import AddressError, check_address, check_listen_address

__all__ = ["Settings", "options"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a scheduler process needs."""

    group: GroupSettings
    rank_addresses: tuple[str, ...]
    listen: tuple[str, ...]
    state_dir: Path
    trace_file: Path | None
    name: str
    connect_seconds_max: float


def _numbers(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of whole numbers: write it as 1,2,4,8")
    return tuple(int(part) for part in parts)


def _default_state_dir(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"stateroom-{name}-scheduler"


def options(run: click.decorators.FC) -> click.decorators.FC:
    """All flags, in the order of --help."""
    for option in reversed(
        [
            click.option(
                "--ranks",
                required=True,
                help="Addresses of all ranks in rank order: unix:/path or host:port, comma-separated.",
            ),
            click.option(
                "--listen",
                multiple=True,
                required=True,
                help="Where to serve: unix:/path or host:port. May be repeated.",
            ),
            click.option(
                "--max-batch-size",
                type=click.IntRange(1),
                required=True,
                help="Sequences in one micro-batch.",
            ),
            click.option(
                "--stages",
                type=click.IntRange(1),
                default=1,
                show_default=True,
                help="Pipeline stages in flight; asked = batch size x stages.",
            ),
            click.option(
                "--max-tokens",
                type=click.IntRange(1),
                default=8192,
                show_default=True,
                help="Tokens of one step.",
            ),
            click.option(
                "--max-seq-len",
                type=click.IntRange(1),
                default=131_072,
                show_default=True,
                help="Prompt and output tokens of one sequence.",
            ),
            click.option(
                "--max-chunk",
                type=click.IntRange(1),
                default=None,
                help="Context tokens of one sequence in one step; default --max-tokens.",
            ),
            click.option(
                "--chunk-unit",
                type=click.IntRange(1),
                default=64,
                show_default=True,
                help="A context chunk is a multiple of it.",
            ),
            click.option(
                "--max-transfers",
                type=click.IntRange(0),
                default=0,
                show_default=True,
                help="Disaggregated inits in transfer at once; 0 is no limit.",
            ),
            click.option(
                "--policy",
                type=click.Choice(["best_effort", "strict"]),
                default="best_effort",
                show_default=True,
                help="May a later sequence pass one that does not fit?",
            ),
            click.option(
                "--starvation-ms",
                type=click.IntRange(0),
                default=10_000,
                show_default=True,
                help="Passed over for longer, a sequence becomes a barrier.",
            ),
            click.option(
                "--max-waiting",
                type=click.IntRange(1),
                default=131_072,
                show_default=True,
                help="Sequences in the queue.",
            ),
            click.option(
                "--max-wait-ms",
                type=click.IntRange(1),
                default=3_600_000,
                show_default=True,
                help="Longest wait.",
            ),
            click.option(
                "--warmup",
                callback=_numbers,
                default="",
                help="Warm-up batch sizes, e.g. 1,2,4,8; told to the executor truncated to the cap.",
            ),
            click.option(
                "--group", "name", default="default", show_default=True, help="Name of the group, for people."
            ),
            click.option(
                "--state-dir", type=click.Path(path_type=Path), default=None, help="Where the term is kept."
            ),
            click.option(
                "--trace-file",
                type=click.Path(path_type=Path),
                default=None,
                help="JSON lines of spans, where OTEL_EXPORTER_OTLP_ENDPOINT is not set.",
            ),
            click.option(
                "--connect-timeout",
                type=click.FloatRange(0),
                default=120.0,
                show_default=True,
                help="Seconds until ranks that never answered are given up; 0 waits for ever.",
            ),
        ]
    ):
        run = option(run)
    return run


def settings_from(
    ranks: str,
    listen: tuple[str, ...],
    max_batch_size: int,
    stages: int,
    max_tokens: int,
    max_seq_len: int,
    max_chunk: int | None,
    chunk_unit: int,
    max_transfers: int,
    policy: str,
    starvation_ms: int,
    max_waiting: int,
    max_wait_ms: int,
    warmup: tuple[int, ...],
    name: str,
    state_dir: Path | None,
    trace_file: Path | None,
    connect_timeout: float,
) -> Settings:
    """Checks what single flags cannot; click.UsageError says what is wrong in one sentence."""
    addresses = tuple(part.strip() for part in ranks.split(",") if part.strip())
    try:
        for address in addresses:
            check_address(address)
        for address in listen:
            check_listen_address(address)
        if len(set(addresses)) != len(addresses):
            raise AddressError(f"--ranks names an address twice in {ranks!r}: give each rank its own")
        group = GroupSettings(
            ranks_count=len(addresses),
            max_batch_size=max_batch_size,
            stages_in_flight=stages,
            max_step_tokens=max_tokens,
            max_sequence_tokens=max_seq_len,
            chunk_unit_tokens=min(chunk_unit, max_tokens),
            max_chunk_tokens=max_chunk or max_tokens,
            transfers_max=max_transfers,
            strict_order=policy == "strict",
            starvation_ms=starvation_ms,
            waiting_max=max_waiting,
            wait_ms_max=max_wait_ms,
            warmup_batches=warmup,
        )
    except (AddressError, SettingsError) as error:
        raise click.UsageError(str(error)) from None
    return Settings(
        group, addresses, listen, state_dir or _default_state_dir(name), trace_file, name, connect_timeout
    )

"""Command line of the scheduler, validated once into frozen settings; one sentence for a bad value."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from scheduler_svc.core.settings import GroupSettings, SettingsError
from stateroom.channel import AddressError, check_address, check_listen_address

__all__ = ["Settings", "options", "settings_from"]


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


def _weights(context: click.Context, parameter: click.Parameter, text: str) -> tuple[tuple[str, int], ...]:
    weights = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, weight = part.rpartition("=")
        if not name or not weight.isdigit():
            raise click.BadParameter(
                f"{part!r} is not a tenant and its weight: write them as team-a=3,team-b=1"
            )
        weights.append((name, int(weight)))
    return tuple(weights)


_COUNT, _FROM_0, _PATH = click.IntRange(1), click.IntRange(0), click.Path(path_type=Path)
_D: dict[str, Any] = {"show_default": True}

# fmt: off
_OPTIONS = [
    click.option("--ranks", required=True, help="Addresses of all ranks in rank order: unix:/path or host:port, comma-separated."),
    click.option("--listen", multiple=True, required=True, help="Where to serve: unix:/path or host:port. May be repeated."),
    click.option("--max-batch-size", type=_COUNT, required=True, help="Sequences in one micro-batch."),
    click.option("--stages", type=_COUNT, default=1, **_D, help="Pipeline stages in flight; asked = batch size x stages."),
    click.option("--max-tokens", type=_COUNT, default=8192, **_D, help="Tokens of one step."),
    click.option("--max-seq-len", type=_COUNT, default=131_072, **_D, help="Prompt and output tokens of one sequence."),
    click.option("--max-chunk", type=_COUNT, default=None, help="Context tokens of one sequence in one step; default --max-tokens."),
    click.option("--chunk-unit", type=_COUNT, default=64, **_D, help="A context chunk is a multiple of it."),
    click.option("--draft-tokens", type=_FROM_0, default=0, **_D, help="Draft tokens, charged on a last chunk and on every decode."),
    click.option("--kv-guarantee", type=click.Choice(["state", "full_length"]), default="state", **_D, help="full_length reserves the KV pages of the longest output."),
    click.option("--policy", type=click.Choice(["best_effort", "strict"]), default="best_effort", **_D, help="May a later sequence pass one that does not fit?"),
    click.option("--starvation-ms", type=_FROM_0, default=10_000, **_D, help="Passed over for longer, a sequence becomes a barrier."),
    click.option("--aging-ms", type=_FROM_0, default=60_000, **_D, help="Waiting that one level of priority is worth; 0: priority always wins."),
    click.option("--tenants", callback=_weights, default="", help="Weighted shares under contention, e.g. team-a=3,team-b=1; others have 1."),
    click.option("--preemption", type=click.Choice(["off", "recompute", "suspend"]), default="off", **_D, help="May a higher priority stop residents at the cap?"),
    click.option("--max-preemptions", type=_COUNT, default=2, **_D, help="How often one sequence may be stopped."),
    click.option("--max-transfers", type=_FROM_0, default=0, **_D, help="Disaggregated inits in transfer at once; 0: no limit."),
    click.option("--transfer-timeout-ms", type=_FROM_0, default=0, **_D, help="After it the id of a sequence in transfer is free; 0: no limit."),
    click.option("--transfer-memory-timeout-ms", type=_COUNT, default=60_000, **_D, help="And after this much longer its slot."),
    click.option("--max-waiting", type=_COUNT, default=131_072, **_D, help="Sequences in the queue."),
    click.option("--max-waiting-tokens", type=_FROM_0, default=0, **_D, help="Their prompt and output tokens; 0: no limit of its own."),
    click.option("--max-waiting-per-tenant", type=_FROM_0, default=0, **_D, help="Of one tenant in the queue; 0: no limit of its own."),
    click.option("--max-wait-ms", type=_COUNT, default=3_600_000, **_D, help="Longest wait."),
    click.option("--warmup", callback=_numbers, default="", help="Warm-up batch sizes, e.g. 1,2,4,8; told to the executor truncated to the cap."),
    click.option("--group", "name", default="default", **_D, help="Name of the group, for people."),
    click.option("--state-dir", type=_PATH, default=None, help="Where the term is kept."),
    click.option("--trace-file", type=_PATH, default=None, help="JSON lines of spans, where OTEL_EXPORTER_OTLP_ENDPOINT is not set."),
    click.option("--connect-timeout", type=click.FloatRange(0), default=120.0, **_D, help="Seconds until ranks that never answered are given up; 0: never."),
]
# fmt: on


def options(run: click.decorators.FC) -> click.decorators.FC:
    """All flags, in the order of --help."""
    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def settings_from(flags: dict[str, Any]) -> Settings:
    """Checks what single flags cannot; click.UsageError says what is wrong in one sentence."""
    addresses = tuple(part.strip() for part in flags["ranks"].split(",") if part.strip())
    try:
        for address in addresses:
            check_address(address)
        for address in flags["listen"]:
            check_listen_address(address)
        if not addresses or len(set(addresses)) != len(addresses):
            raise AddressError(
                f"--ranks {flags['ranks']!r} is empty or names an address twice: give each rank its own"
            )
        group = _group(flags, len(addresses))
    except (AddressError, SettingsError) as error:
        raise click.UsageError(str(error)) from None
    return Settings(
        group=group,
        rank_addresses=addresses,
        listen=flags["listen"],
        state_dir=flags["state_dir"] or Path(tempfile.gettempdir()) / f"stateroom-{flags['name']}-scheduler",
        trace_file=flags["trace_file"],
        name=flags["name"],
        connect_seconds_max=flags["connect_timeout"],
    )


def _group(flags: dict[str, Any], ranks_count: int) -> GroupSettings:
    return GroupSettings(
        ranks_count=ranks_count,
        max_batch_size=flags["max_batch_size"],
        stages_in_flight=flags["stages"],
        max_step_tokens=flags["max_tokens"],
        max_sequence_tokens=flags["max_seq_len"],
        chunk_unit_tokens=min(flags["chunk_unit"], flags["max_tokens"]),
        max_chunk_tokens=flags["max_chunk"] or flags["max_tokens"],
        draft_tokens=flags["draft_tokens"],
        kv_full_length=flags["kv_guarantee"] == "full_length",
        strict_order=flags["policy"] == "strict",
        starvation_ms=flags["starvation_ms"],
        aging_ms=flags["aging_ms"],
        tenant_weights=flags["tenants"],
        preemption=flags["preemption"],
        preemptions_max=flags["max_preemptions"],
        transfers_max=flags["max_transfers"],
        transfer_ms_max=flags["transfer_timeout_ms"],
        transfer_memory_ms_max=flags["transfer_memory_timeout_ms"],
        waiting_max=flags["max_waiting"],
        waiting_tokens_max=flags["max_waiting_tokens"],
        tenant_waiting_max=flags["max_waiting_per_tenant"],
        wait_ms_max=flags["max_wait_ms"],
        warmup_batches=flags["warmup"],
    )

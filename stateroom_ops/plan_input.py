"""What a planner types, made exact: which config, how many bytes on which rank."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.config_file import load_config
from stateroom.residency.quantity import QuantityError, div_ceil, format_gib, parse_bytes
from stateroom_ops.presets import preset_config, preset_names

__all__ = ["GPU_BYTES", "find_config", "gpu_quota", "parse_fraction", "parse_layers", "parse_quota"]

# What the driver leaves an application of each card (less than its name says): the smallest figure seen
# in public logs. Another card: give its bytes instead of a name.
GPU_BYTES = {
    "t4-16g": parse_bytes("14.56GiB"),
    "l4-24g": parse_bytes("21.96GiB"),
    "a10-24g": parse_bytes("21.98GiB"),
    "l40s-48g": parse_bytes("44.39GiB"),
    "a100-40g": parse_bytes("39.38GiB"),
    "a100-80g": parse_bytes("79.14GiB"),
    "h100-80g": parse_bytes("79.10GiB"),
    "h200-141g": parse_bytes("139.71GiB"),
    "b200-192g": parse_bytes("178.35GiB"),
}


def find_config(name: str) -> dict[str, object]:
    """A preset's config, or that of a config.json (or of the folder that holds one). ConfigError else."""
    path = Path(name)
    if path.is_dir():
        return load_config(path / "config.json")
    preset = None if path.is_file() else preset_config(name)
    if preset is not None:
        return preset
    if path.suffix == ".json" or path.is_file():
        return load_config(path)
    raise ConfigError(
        "--config",
        name,
        "it is neither a file nor a preset",
        f"give a path, or one of {', '.join(preset_names())}",
    )


def parse_quota(text: str, ranks: int) -> tuple[int, ...]:
    """Bytes a rank of "24GiB" (every rank), "0=24GiB,1=20GiB", or "24GiB,3=20GiB" (all but rank 3)."""
    for_all: int | None = None
    by_rank: dict[int, int] = {}
    for part in text.split(","):
        name, equals, amount = part.rpartition("=")
        if not equals:
            if for_all is not None:
                raise _quota_error(text, "it gives two quotas for every rank", "name the ranks")
            for_all = parse_bytes(amount)
            continue
        if not name.strip().isdecimal() or int(name) >= ranks:
            raise _quota_error(text, f"{name!r} is no rank", f"ranks are 0 to {ranks - 1}")
        if int(name) in by_rank:
            raise _quota_error(text, f"rank {name.strip()} stands in it twice", "give it once")
        by_rank[int(name)] = parse_bytes(amount)
    missing = [rank for rank in range(ranks) if rank not in by_rank]
    if for_all is None and missing:
        raise _quota_error(
            text, f"rank {missing[0]} has none", "give one for every rank, or one without a rank"
        )
    return tuple(by_rank.get(rank, for_all or 0) for rank in range(ranks))


def _quota_error(text: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError("--quota", text, problem, remedy)


def gpu_quota(gpu: str, weights: str | None, fraction: Fraction, ranks: int) -> int:
    """What a card leaves one rank: its bytes x fraction, less an even share of the whole model's weights."""
    if weights is None:
        raise ConfigError(
            "--weights", None, "--gpu leaves the rest of a card", "give the whole model's, as 55GiB"
        )
    if gpu.lower() in GPU_BYTES:
        card_bytes = GPU_BYTES[gpu.lower()]
    else:
        try:
            card_bytes = parse_bytes(gpu)
        except QuantityError:
            known = ", ".join(GPU_BYTES)
            raise ConfigError(
                "--gpu", gpu, "no such card is known", f"use {known}, or bytes as 80GiB"
            ) from None
    share_bytes = div_ceil(parse_bytes(weights), ranks)
    quota_bytes = math.floor(card_bytes * fraction) - share_bytes
    if quota_bytes <= 0:
        raise ConfigError(
            "--weights",
            weights,
            f"a share of {format_gib(share_bytes)} leaves nothing of {format_gib(math.floor(card_bytes * fraction))}",
            "use more ranks or a larger card",
        )
    return quota_bytes


def parse_fraction(flag: str, text: str) -> Fraction:
    """An exact ratio in (0, 1] of "0.9" or "9/10"."""
    try:
        fraction = Fraction(text)
    except (ValueError, ZeroDivisionError):
        fraction = Fraction(0)
    if not 0 < fraction <= 1:
        raise ConfigError(flag, text, "a share of the memory is needed", "give a number above 0 and up to 1")
    return fraction


def parse_layers(text: str | None) -> tuple[int, ...] | None:
    """Layers a stage of "20,22,22"."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ConfigError("--pp-layers", text, "layers of each stage are needed", "write it as 20,22,22")
    return tuple(int(part) for part in parts)

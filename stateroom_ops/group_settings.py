"""What a local group of processes is made of, and the command line of each of them.

The default is a small twin of Qwen3.5-27B: the same layers and heads, an eighth of the widths, so that
a group of four ranks runs on a laptop while every sum is of the real kind.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stateroom.channel import check_address
from stateroom.residency.model import read_model
from stateroom.residency.plan import GroupPlan, PlanRequest, plan_group
from stateroom.residency.rank_state import StateOptions
from stateroom.residency.sizing import Guarantee
from stateroom.residency.twin import shrink
from stateroom_ops.presets import preset_config

__all__ = ["DEFAULT_PRESET", "GroupSettings", "twin_config"]

DEFAULT_PRESET = "qwen3.5-27b"
TWIN_FACTOR = 8
MAX_SEQ_LEN_OTHERWISE = 131_072  # a model without positions has no maximum of its own


def twin_config(preset: str = DEFAULT_PRESET, factor: int = TWIN_FACTOR) -> dict[str, object]:
    """The small twin of a preset's config (KeyError for no such preset)."""
    config = preset_config(preset)
    if config is None:
        raise KeyError(preset)
    return shrink(config, factor)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group of tp_size x pp_size ranks in `run_dir`; `quota_bytes` has one entry a rank.

    `start_after_s` delays the start of single ranks by seconds. `max_seq_len` None takes the config's.
    """

    config: Mapping[str, object]
    quota_bytes: tuple[int, ...]
    run_dir: Path
    name: str = "default"
    tp_size: int = 1
    pp_size: int = 1
    pp_layers: tuple[int, ...] | None = None
    max_batch_size: int = 64
    max_tokens: int = 8192
    chunk_unit: int = 64
    max_seq_len: int | None = None
    reserved: int = 1
    fixed_bytes: int = 0
    ssm_dtype: str | None = None
    conv_dtype: str | None = None
    draft_tokens: int = 0
    guarantee: Guarantee = "state"
    warmup: str = ""
    policy: str = "best_effort"
    start_after_s: Mapping[int, float] = field(default_factory=dict)

    @property
    def ranks_count(self) -> int:
        """Ranks of the group."""
        return self.tp_size * self.pp_size

    @property
    def scheduler_address(self) -> str:
        """gRPC target of the scheduler."""
        return f"unix:{self.run_dir}/scheduler.sock"

    @property
    def rank_addresses(self) -> tuple[str, ...]:
        """gRPC targets in rank order."""
        return tuple(f"unix:{self.run_dir}/rank{rank}.sock" for rank in range(self.ranks_count))

    @property
    def trace_file(self) -> Path:
        """JSON lines of every process of the group."""
        return self.run_dir / "trace.jsonl"

    @property
    def config_file(self) -> Path:
        """Where the services read the config."""
        return self.run_dir / "model.json"

    def plan(self) -> GroupPlan:
        """What this group will agree on. Errors: ConfigError. `error` of the plan names a cap of 0."""
        return plan_group(
            PlanRequest(
                model=read_model(self.config),
                quota_bytes=self.quota_bytes,
                max_batch_size=self.max_batch_size,
                options=StateOptions(self.ssm_dtype, self.conv_dtype, draft_tokens=self.draft_tokens),
                tp_size=self.tp_size,
                pp_size=self.pp_size,
                pp_layers=self.pp_layers,
                reserved_slots=self.reserved,
                fixed_bytes=self.fixed_bytes,
                guarantee=self.guarantee,
                max_seq_len=self.max_seq_len,
            )
        )

    def check(self) -> None:
        """AddressError where the folder's name is too long for a socket."""
        for address in (self.scheduler_address, *self.rank_addresses):
            check_address(address)

    def sequence_tokens_max(self) -> int:
        """Longest sequence the scheduler takes."""
        own = read_model(self.config).max_position_embeddings
        return self.max_seq_len or own or MAX_SEQ_LEN_OTHERWISE

    def rank_command(self, rank: int) -> list[str]:
        """argv of one cache service."""
        pp_rank, tp_rank = divmod(rank, self.tp_size)
        return [
            *(sys.executable, "-m", "cache_svc", "--config", str(self.config_file)),
            *("--tp-size", str(self.tp_size), "--tp-rank", str(tp_rank)),
            *("--pp-size", str(self.pp_size), "--pp-rank", str(pp_rank)),
            *("--quota", str(self.quota_bytes[rank]), "--fixed", str(self.fixed_bytes)),
            *("--reserved", str(self.reserved), "--draft-tokens", str(self.draft_tokens)),
            *("--guarantee", self.guarantee),
            *_given("--pp-layers", ",".join(map(str, self.pp_layers or ()))),
            *_given("--ssm-dtype", self.ssm_dtype),
            *_given("--conv-dtype", self.conv_dtype),
            *_given("--max-seq-len", self.max_seq_len),
            *("--listen", self.rank_addresses[rank]),
            *("--state-dir", str(self.run_dir / f"rank{rank}.state")),
            *("--trace-file", str(self.trace_file)),
        ]

    def scheduler_command(self) -> list[str]:
        """argv of the scheduler."""
        return [
            *(sys.executable, "-m", "scheduler_svc", "--ranks", ",".join(self.rank_addresses)),
            *("--max-batch-size", str(self.max_batch_size), "--stages", str(self.pp_size)),
            *("--max-tokens", str(self.max_tokens), "--chunk-unit", str(self.chunk_unit)),
            *("--max-seq-len", str(self.sequence_tokens_max()), "--policy", self.policy),
            *_given("--warmup", self.warmup),
            *("--group", self.name, "--listen", self.scheduler_address),
            *("--state-dir", str(self.run_dir / "scheduler.state")),
            *("--trace-file", str(self.trace_file)),
        ]


def _given(flag: str, value: object) -> tuple[str, ...]:
    return (flag, str(value)) if value else ()

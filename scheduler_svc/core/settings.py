"""Limits of a group, frozen and validated once; every queue and wait has one (rules A6, A8)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupSettings", "SettingsError"]


class SettingsError(ValueError):
    """A setting that cannot work; the message names field, value and remedy."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Numbers of one group. Tokens and sequences are a step's unless the name says otherwise."""

    ranks_count: int
    max_batch_size: int  # sequences in one micro-batch
    stages_in_flight: int = 1  # pipeline stages that each hold a micro-batch
    max_step_tokens: int = 8192
    max_sequence_tokens: int = 131_072  # prompt and output together
    chunk_unit_tokens: int = 64  # a chunk is a multiple of it unless it is the prompt's last (rule A8)
    max_chunk_tokens: int = 8192  # context tokens of one sequence in one step
    transfers_max: int = 0  # disaggregated inits in transfer at once, 0 is no limit of its own
    strict_order: bool = False  # rule A4: nobody passes the oldest
    starvation_ms: int = 10_000  # passed over for longer, a sequence becomes a barrier (rule A4)
    aging_ms: int = 60_000  # of waiting that one level of priority is worth; 0: priority always wins
    tenant_weights: tuple[tuple[str, int], ...] = ()  # shares under contention; a tenant not named has 1
    preemption: str = "off"  # "off", "recompute" or "suspend" (rule A4)
    preemptions_max: int = 2  # of one sequence
    draft_tokens: int = 0  # charged on a last chunk and on every decode (rule A8)
    kv_full_length: bool = False  # pages of the longest output are reserved, not only of the first chunk
    transfer_ms_max: int = 0  # after it the name of a sequence in transfer is free; 0: no limit
    transfer_memory_ms_max: int = 60_000  # and after this much longer its memory
    waiting_max: int = 131_072  # sequences in the queue (rule A6)
    waiting_tokens_max: int = 0  # their prompt and output tokens, 0: no limit of its own
    tenant_waiting_max: int = 0  # sequences of one tenant in the queue, 0: no limit of its own
    retry_after_ms: int = 1_000  # told where no release was measured yet
    wait_ms_max: int = 3_600_000  # longest wait (rule A6)
    watchdog_steps: int = 64  # without any work while somebody waits (rule A9)
    watchdog_ms: int = 5_000
    warmup_batches: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "ranks_count",
            "max_batch_size",
            "stages_in_flight",
            "max_step_tokens",
            "max_sequence_tokens",
            "chunk_unit_tokens",
            "max_chunk_tokens",
            "waiting_max",
            "wait_ms_max",
        ):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}: give at least 1")
        if self.chunk_unit_tokens > min(self.max_step_tokens, self.max_chunk_tokens):
            raise SettingsError(
                f"chunk_unit_tokens is {self.chunk_unit_tokens} and a step has room for "
                f"{min(self.max_step_tokens, self.max_chunk_tokens)} tokens of one sequence: no chunk could ever "
                "start, make the unit smaller or the step larger"
            )
        if self.chunk_unit_tokens + self.draft_tokens > self.max_step_tokens:
            raise SettingsError(
                f"chunk_unit_tokens is {self.chunk_unit_tokens} and draft_tokens is {self.draft_tokens}, and a step "
                f"has room for {self.max_step_tokens} tokens: a last chunk with its drafts could never run, make "
                "the unit smaller or the step larger"
            )
        if self.preemption not in ("off", "recompute", "suspend"):
            raise SettingsError(f"preemption is {self.preemption!r}: give off, recompute or suspend")
        wrong = [f"{name}={weight}" for name, weight in self.tenant_weights if weight < 1]
        if wrong:
            raise SettingsError(f"tenant weight {wrong[0]} is below 1: give whole weights from 1")
        if any(batch < 1 for batch in self.warmup_batches):
            raise SettingsError(
                f"warmup_batches is {self.warmup_batches}: every batch needs at least 1 sequence"
            )

    @property
    def asked(self) -> int:
        """Sequences the group wants to hold (rule B1)."""
        return self.max_batch_size * self.stages_in_flight

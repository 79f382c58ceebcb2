"""What a replay counts, and its summary: one object for --json, one table for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["ReplayTally", "percentile"]

ERRORS_SHOWN = 20


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class ReplayTally:
    """Counts of one run. Times are in ms of the run's clock: virtual with --speed max, else real."""

    requests: int = 0
    finished: int = 0
    cancelled: int = 0
    recomputed: int = 0
    steps: int = 0
    away_steps: int = 0
    tokens_generated: int = 0
    tokens_context: int = 0
    peak_residents: int = 0
    peak_waiting: int = 0
    residents: int = 0
    waiting: int = 0
    clock_ms: float = 0.0
    real_s: float = 0.0
    waits_ms: list[float] = field(default_factory=list)
    longest_wait: tuple[float, str] = (0.0, "")
    rejected_by_reason: Counter[str] = field(default_factory=Counter)
    waits_sequences: Counter[str] = field(default_factory=Counter)
    waits_ms_by_reason: Counter[str] = field(default_factory=Counter)
    waiting_by_reason: dict[str, int] = field(default_factory=dict)
    errors_count: int = 0
    errors: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def settled(self) -> int:
        """Requests that have come to an end of any kind."""
        return self.finished + self.cancelled + sum(self.rejected_by_reason.values())

    def fail(self, sentence: str) -> None:
        """Something that must not happen."""
        self.errors_count += 1
        if len(self.errors) < ERRORS_SHOWN:
            self.errors.append(sentence)

    def waited(self, sequence_id: str, wait_ms: float, ms_by_reason: dict[str, float]) -> None:
        """An admission, with the time it waited for each reason."""
        self.waits_ms.append(wait_ms)
        self.longest_wait = max(self.longest_wait, (wait_ms, sequence_id))
        for reason, ms in ms_by_reason.items():
            self.waits_sequences[reason] += 1
            self.waits_ms_by_reason[reason] += round(ms)

    def as_dict(self) -> dict[str, object]:
        """The summary's own part; group facts are added by the command."""
        seconds = self.clock_ms / 1000
        return {
            "requests": self.requests,
            "finished": self.finished,
            "cancelled": self.cancelled,
            "rejected_by_reason": dict(self.rejected_by_reason),
            "recomputed": self.recomputed,
            "errors": self.errors_count,
            "error_sentences": list(self.errors),
            "events": list(self.events),
            "steps": self.steps,
            "away_steps": self.away_steps,
            "peak_residents": self.peak_residents,
            "peak_waiting": self.peak_waiting,
            "wait_ms": {
                "p50": percentile(self.waits_ms, 0.5),
                "p95": percentile(self.waits_ms, 0.95),
                "p99": percentile(self.waits_ms, 0.99),
                "max": max(self.waits_ms, default=0.0),
            },
            "longest_wait_id": self.longest_wait[1],
            "waits_by_reason": {
                reason: {"sequences": count, "ms": self.waits_ms_by_reason[reason]}
                for reason, count in self.waits_sequences.most_common()
            },
            "tokens": {"context": self.tokens_context, "generated": self.tokens_generated},
            "throughput": {
                "generated_tokens_per_s": round(self.tokens_generated / seconds, 1) if seconds else 0.0,
                "requests_per_s": round(self.finished / seconds, 2) if seconds else 0.0,
                "steps_per_real_s": round(self.steps / self.real_s, 1) if self.real_s else 0.0,
            },
            "clock_s": round(seconds, 3),
            "real_s": round(self.real_s, 3),
        }

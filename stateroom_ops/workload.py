"""A seeded workload for use with no trace: bursts of arrivals, lengths with a long tail.

Arrivals come in bursts (a two-state process: calm and busy), prompts and outputs are log-normal with the
spread of published conversation traces. One seed gives one workload on every machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from stateroom_ops.traces import TraceRequest

__all__ = ["Workload", "generate"]

PROMPT_TOKENS_MAX = 32_768
OUTPUT_TOKENS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests, mean arrivals a second, and the two medians in tokens.

    In a busy stretch arrivals are `burst_factor` times as dense as in a calm one; both last a few
    seconds. `spread` is the standard deviation of the logarithm of a length.
    """

    requests_count: int = 1000
    rate_per_s: float = 8.0
    burst_factor: float = 6.0
    stretch_s: float = 6.0
    prompt_tokens_median: int = 700
    output_tokens_median: int = 140
    spread: float = 0.9
    seed: int = 0


def generate(workload: Workload) -> list[TraceRequest]:
    """The requests, in order of arrival."""
    chance = random.Random(workload.seed)
    calm_rate = 2 * workload.rate_per_s / (1 + workload.burst_factor)
    now_s, busy, until_s = 0.0, False, chance.expovariate(1 / workload.stretch_s)
    requests: list[TraceRequest] = []
    while len(requests) < workload.requests_count:
        gap_s = chance.expovariate(calm_rate * (workload.burst_factor if busy else 1))
        if now_s + gap_s > until_s:  # the rate changes first; the process has no memory, so draw again
            now_s, busy = until_s, not busy
            until_s += chance.expovariate(1 / workload.stretch_s)
            continue
        now_s += gap_s
        requests.append(
            TraceRequest(
                round(now_s * 1000, 3),
                _length(chance, workload.prompt_tokens_median, workload.spread, PROMPT_TOKENS_MAX),
                _length(chance, workload.output_tokens_median, workload.spread, OUTPUT_TOKENS_MAX),
            )
        )
    first_ms = requests[0].arrival_ms if requests else 0.0
    return [TraceRequest(r.arrival_ms - first_ms, r.prompt_tokens, r.output_tokens) for r in requests]


def _length(chance: random.Random, median: int, spread: float, most: int) -> int:
    return max(1, min(most, int(median * chance.lognormvariate(0.0, spread))))

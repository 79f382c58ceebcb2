"""`stateroom plan` from start to end against a bare Python (issue: at most 3 x + 0.2 s, median).

python -m benchmarks.plan_start
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

__all__ = ["measure"]

RUNS = 15
PLAN = ("plan", "--config", "qwen3.5-27b", "--quota", "24.86GiB", "--max-batch-size", "512", "--json")


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def measure() -> dict[str, float]:
    """Medians in seconds, the two commands in turn, and the limit that follows."""
    stateroom = str(Path(sys.executable).parent / "stateroom")
    pairs = [(_seconds([sys.executable, "-c", "pass"]), _seconds([stateroom, *PLAN])) for _ in range(RUNS)]
    bare, plan = median(p[0] for p in pairs), median(p[1] for p in pairs)
    return {"bare_s": round(bare, 4), "plan_s": round(plan, 4), "limit_s": round(3 * bare + 0.2, 4)}


if __name__ == "__main__":
    result = measure()
    print(result)
    sys.exit(result["plan_s"] > result["limit_s"])

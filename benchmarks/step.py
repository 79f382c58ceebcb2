"""A whole step over gRPC against a bare echo on the same kind of stream, in one run (design, section 8).

    python -m benchmarks.step                 512 residents, 10,000 waiters, 8 ranks

Echo and step take turns in blocks, so that both see the same machine. The step's answer is a decision:
facts in, plan, admission pass, answer; binds go out and are confirmed beside it.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.echo import echo_stream
from benchmarks.plan_start import measure
from stateroom.client import Session
from stateroom_ops.group_settings import GroupSettings, twin_config
from stateroom_ops.local_group import LocalGroup

__all__ = ["run"]

RESIDENTS, RANKS, BLOCKS, BLOCK = 512, 8, 20, 100
PAYLOAD = bytes(64)
PACE_SECONDS = 0.01


def _settings(folder: Path, residents: int) -> GroupSettings:
    values: dict[str, Any] = {
        "config": twin_config(factor=16),
        "run_dir": folder / "g",
        "name": "bench",
        "tp_size": RANKS,
        "max_batch_size": 2 * residents,
        "max_tokens": 65_536,
    }
    slot_bytes = GroupSettings(quota_bytes=(2**40,) * RANKS, **values).plan().ranks[0].state.slot_bytes
    return GroupSettings(quota_bytes=(slot_bytes * (residents + 1),) * RANKS, **values)


class _Load:
    """Residents that decode and waiters behind them; `change` is the share that ends and is replaced."""

    def __init__(self, session: Session) -> None:
        self.session, self.number, self.last = session, 0, 0

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.session.submit(f"q{self.number}", prompt_tokens=8, max_output_tokens=1000)

    async def fill(self, waiters: int) -> None:
        self.submit(RESIDENTS)
        while len(self.session.held) < RESIDENTS:
            self.last = (await self.session.step(completed_step=self.last)).step
            await self.session.settle()
        while waiters > 0:
            self.submit(min(2000, waiters))
            waiters -= 2000
            self.last = (await self.session.step(completed_step=self.last)).step

    async def step(self, ends: int) -> float:
        for name in list(self.session.held)[:ends]:
            self.session.finish(name)
        self.submit(ends)
        began = time.perf_counter()
        self.last = (await self.session.step(completed_step=self.last)).step
        seconds = time.perf_counter() - began
        if ends:  # as an engine's steps are: the ranks' work of the last one is over when the next comes
            await self.session.settle()
            await asyncio.sleep(PACE_SECONDS)
        return seconds


async def _echo(stream: Any) -> float:
    began = time.perf_counter()
    await stream.write(PAYLOAD)
    await stream.read()
    return time.perf_counter() - began


def _percentiles(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100)
    return {f"p{p}_ms": round(1000 * cuts[p - 1], 4) for p in (50, 90, 99)}


async def run() -> list[dict[str, Any]]:
    """One row a load, with the ratio to the echo that took turns with it."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="srb-") as name:
        folder = Path(name)
        settings = _settings(folder, RESIDENTS)
        async with LocalGroup(settings, lambda line: None), echo_stream(folder) as stream:
            session = await Session.connect(settings.scheduler_address, executor="bench", timeout_s=60)
            load = _Load(session)
            waiters = 0
            for add, ends in ((0, 0), (10_000, 0), (0, 5)):
                waiters += add
                await load.fill(add)
                echoes, steps = [], []
                for _ in range(BLOCKS // 4 if ends else BLOCKS):
                    echoes += [await _echo(stream) for _ in range(BLOCK)]
                    steps += [await load.step(ends) for _ in range(BLOCK)]
                echo, step = _percentiles(echoes), _percentiles(steps)
                rows.append(
                    {
                        "residents": RESIDENTS,
                        "waiters": waiters,
                        "ranks": RANKS,
                        "ends_a_step": ends,
                        "echo": echo,
                        "step": step,
                        "ratio_p50": round(step["p50_ms"] / echo["p50_ms"], 2),
                        "ratio_p99": round(step["p99_ms"] / echo["p99_ms"], 2),
                    }
                )
            await session.close()
    return rows


def _table(rows: list[dict[str, Any]], plan: dict[str, float]) -> str:
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    lines = [
        "# Results",
        "",
        f"{time.strftime('%Y-%m-%d')}, {machine}; `make bench`. Ratios within one run count, times do not.",
        "",
        "A whole step over the Step stream (asyncio caller) against a bare echo on the same kind of stream:",
        "",
        "| residents | waiters | ranks | end a step | echo p50 ms | step p50 ms | ratio p50 | ratio p99 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['residents']} | {row['waiters']:,} | {row['ranks']} | {row['ends_a_step']} | "
            f"{row['echo']['p50_ms']:.3f} | {row['step']['p50_ms']:.3f} | {row['ratio_p50']:.2f} | {row['ratio_p99']:.2f} |"
        )
    lines += [
        "",
        f"`stateroom plan`, start to end: {plan['plan_s']:.3f} s, bare Python {plan['bare_s']:.3f} s ",
    ]
    lines[-1] += f"(limit 3 x + 0.2 s = {plan['limit_s']:.3f} s)."
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    found = asyncio.run(run())
    start = measure()
    here = Path(__file__).parent
    (here / "results.json").write_text(json.dumps({"step": found, "plan_start": start}, indent=1) + "\n")
    (here / "RESULTS.md").write_text(_table(found, start))
    print(_table(found, start))
    sys.exit(start["plan_s"] > start["limit_s"])

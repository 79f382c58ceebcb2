"""The clock of a replay: virtual (each step is so many ms and nobody sleeps) or real.

`trace_ms` is the trace's own time, by which requests arrive; `now_ms` is the run's, in which waits are
measured. They differ by the speed-up.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "RealClock", "VirtualClock"]


class Clock(Protocol):
    """What the loop needs of time."""

    is_virtual: bool

    @property
    def now_ms(self) -> float:
        """Time of the run."""

    @property
    def trace_ms(self) -> float:
        """Time of the trace."""

    async def next_step(self) -> None:
        """Passes to the next step."""

    async def idle_until(self, trace_ms: float) -> None:
        """Nothing to do before that time of the trace."""


class VirtualClock:
    """A step lasts `step_ms`; `rate` makes arrivals denser. The same run comes out every time."""

    is_virtual = True

    def __init__(self, step_ms: float, rate: float = 1.0) -> None:
        self._step_ms = step_ms
        self._rate = rate
        self._now_ms = 0.0

    @property
    def now_ms(self) -> float:
        """Time of the run."""
        return self._now_ms

    @property
    def trace_ms(self) -> float:
        """Time of the trace."""
        return self._now_ms * self._rate

    async def next_step(self) -> None:
        """One step on."""
        self._now_ms += self._step_ms

    async def idle_until(self, trace_ms: float) -> None:
        """Jumps there."""
        self._now_ms = max(self._now_ms, trace_ms / self._rate)


class RealClock:
    """A step takes `step_ms` of real time; the trace runs `speed` times as fast as recorded."""

    is_virtual = False

    def __init__(self, step_ms: float, speed: float) -> None:
        self._step_s = step_ms / 1000
        self._speed = speed
        self._began = time.monotonic()
        self._next = self._began

    @property
    def now_ms(self) -> float:
        """Time of the run."""
        return (time.monotonic() - self._began) * 1000

    @property
    def trace_ms(self) -> float:
        """Time of the trace."""
        return self.now_ms * self._speed

    async def next_step(self) -> None:
        """Waits for the next tick; one that is late already starts the beat anew."""
        now = time.monotonic()
        self._next = max(self._next + self._step_s, now)
        await asyncio.sleep(self._next - now)

    async def idle_until(self, trace_ms: float) -> None:
        """Sleeps until then."""
        await asyncio.sleep(max(0.0, (trace_ms - self.trace_ms) / self._speed / 1000))
        self._next = time.monotonic()

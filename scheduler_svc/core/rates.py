"""How fast slots come free, measured: behind retry-after and the estimates of Explain."""

from __future__ import annotations

from scheduler_svc.core.world import World

__all__ = ["estimate_ms"]


def estimate_ms(world: World, slots: int) -> int | None:
    """Time until so many slots come free at the rate of the last releases; None before two of them."""
    times = world.release_times_ms
    if len(times) < 2 or times[-1] == times[0]:
        return None
    return -(-slots * (times[-1] - times[0]) // (len(times) - 1))

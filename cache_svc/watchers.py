"""Who waits for the next change of the residency.

A watcher says which version it has sent, so that a change between its last word and its wait is never
missed until the next heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib

__all__ = ["Watchers"]


class Watchers:
    """`version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._changed = asyncio.Condition()

    async def tell(self) -> None:
        """Something changed."""
        self.version += 1
        async with self._changed:
            self._changed.notify_all()

    async def wait(self, version: int, seconds_max: float) -> None:
        """Returns as soon as there is something newer than `version`, or after `seconds_max`."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(lambda: self.version != version), seconds_max)

"""How long each sequence waited, and for which reasons, by the run's own clock.

Reasons are looked at after every step while few wait, and more rarely the more wait, so that a long queue
does not slow the loop; a wait is charged to the reason last seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from stateroom_ops.replay_tally import ReplayTally

__all__ = ["WaitBook"]

LOOKS_PER_STEP = 64


class _Reasons(Protocol):
    def wait_reason(self, sequence_id: str) -> str | None: ...


@dataclass(slots=True)
class _Wait:
    since_ms: float
    reason: str | None = None
    reason_since_ms: float = 0.0
    ms_by_reason: dict[str, float] = field(default_factory=dict)

    def sees(self, reason: str | None, now_ms: float) -> None:
        if reason == self.reason:
            return
        self.charge(now_ms)
        self.reason, self.reason_since_ms = reason, now_ms

    def charge(self, now_ms: float) -> None:
        if self.reason is not None:
            so_far = self.ms_by_reason.get(self.reason, 0.0)
            self.ms_by_reason[self.reason] = so_far + now_ms - self.reason_since_ms


class WaitBook:
    """Everything that waits. A sequence that is told to recompute waits a second time."""

    def __init__(self, reasons: _Reasons, tally: ReplayTally) -> None:
        self._reasons = reasons
        self._tally = tally
        self._waits: dict[str, _Wait] = {}
        self._new: list[str] = []
        self._steps_to_look = 0

    def __len__(self) -> int:
        return len(self._waits)

    def arrived(self, name: str, now_ms: float) -> None:
        """It waits from now on."""
        self._waits[name] = _Wait(now_ms)
        self._new.append(name)

    def told(self, held: Iterable[str], now_ms: float, *, at_once: bool = False) -> None:
        """These hold a slot now: the wait of each that still waited here is over. `at_once`: its slot was
        chosen when it came, so what passed is the way of the bind and no reason is charged."""
        for name in held:
            wait = self._waits.pop(name, None)
            if wait is not None:
                wait.charge(now_ms)
                reasons = {} if at_once else wait.ms_by_reason
                self._tally.waited(name, now_ms - wait.since_ms, reasons)

    def first_reason(self) -> str | None:
        """Why the one that has waited longest waits; None if nobody does."""
        return next((reason for name in self._waits if (reason := self._reasons.wait_reason(name))), None)

    def ended(self, name: str) -> None:
        """It will never start."""
        self._waits.pop(name, None)

    def sample(self, now_ms: float) -> None:
        """After a step: new ones always, all of them when it is time."""
        self._steps_to_look -= 1
        look_at_all = self._steps_to_look <= 0
        for name in self._waits if look_at_all else self._new:
            wait = self._waits.get(name)
            if wait is not None:
                wait.sees(self._reasons.wait_reason(name), now_ms)
        self._new.clear()
        if look_at_all:
            self._steps_to_look = 1 + len(self._waits) // LOOKS_PER_STEP
            seen = Counter(wait.reason for wait in self._waits.values() if wait.reason is not None)
            self._tally.waiting_by_reason = dict(seen)

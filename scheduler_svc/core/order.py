"""The order of waiters (rule A4): a key that never changes while time passes."""

from __future__ import annotations

from scheduler_svc.core.sequence import Sequence
from scheduler_svc.core.settings import GroupSettings

__all__ = ["place"]


def place(settings: GroupSettings, sequence: Sequence) -> tuple[int, int, int]:
    """The order key. With aging, one level of priority is worth `aging_ms` of waiting: the key never
    changes while time passes, so nothing has to be sorted again. One that had started goes before the
    unstarted of its priority, and no further (scenario A16)."""
    priority, aging_ms = sequence.arrival.priority, settings.aging_ms
    started = 0 if sequence.started else 1
    if not aging_ms:
        return (-priority, started, sequence.number)
    boost_ms = 0 if started else aging_ms - 1
    return (sequence.arrived_ms - priority * aging_ms - boost_ms, started, sequence.number)

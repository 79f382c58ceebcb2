"""How many sequences something affords: three types, never a sentinel (rule B1).

`Pending` is not an answer yet and absorbs in the MIN; `Unbounded` is its identity; `Bounded(0)` is a
real answer. None, -1 and a missing field never stand for any of them (scenarios G13, S09).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Answer", "Bounded", "Pending", "Unbounded", "describe"]


@dataclass(frozen=True, slots=True)
class Pending:
    """Not heard from, stale, or still starting; `reason` is one sentence for people."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unbounded:
    """No recurrent layers here, or the quota affords everything that was asked."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """At most `slots_count` sequences, reserved rows not counted; 0 is a real answer."""

    slots_count: int

    def __post_init__(self) -> None:
        assert self.slots_count >= 0, f"a bound of {self.slots_count} slots: a negative bound is 0"


Answer = Pending | Unbounded | Bounded


def describe(answer: Answer) -> str:
    """The answer in two or three words, for tables and sentences."""
    match answer:
        case Pending(reason):
            return f"pending ({reason})" if reason else "pending"
        case Unbounded():
            return "unbounded"
        case Bounded(slots_count):
            return f"{slots_count} slots"

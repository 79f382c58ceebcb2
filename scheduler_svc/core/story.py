"""What became of a sequence, kept after its end for Explain."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_svc.core.reason_clock import ClosedSpell
from stateroom.residency.reasons import WaitReason

__all__ = ["HISTORY_MAX", "Ended", "History", "history_of"]

HISTORY_MAX = 32  # reason changes told of one sequence, the first always kept (section 7)

History = tuple[tuple[WaitReason, int, int, str], ...]  # reason, from ms after arrival, for ms, detail


def history_of(spells: list[ClosedSpell], arrived_ms: int) -> History:
    """Spells as times after arrival. Neighbours of one reason are joined; the first is always kept."""
    rows: list[tuple[WaitReason, int, int, str]] = []
    for reason, from_ms, to_ms, detail in spells:
        if rows and rows[-1][0] is reason and rows[-1][1] + rows[-1][2] == from_ms - arrived_ms:
            rows[-1] = (reason, rows[-1][1], to_ms - arrived_ms - rows[-1][1], rows[-1][3])
        elif to_ms > from_ms or not rows:
            rows.append((reason, from_ms - arrived_ms, to_ms - from_ms, detail))
    return tuple(rows if len(rows) <= HISTORY_MAX else [rows[0], *rows[1 - HISTORY_MAX :]])


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a story. `outcome` as in ExplainResponse; times in ms."""

    sequence_id: str
    outcome: str
    message: str
    demand: int
    waited_ms: int
    position_at_arrival: int
    history: History

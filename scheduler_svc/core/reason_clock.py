"""Time by wait reason, kept once a lane instead of once a waiter.

All waiters of a lane have the same reason, so a lane keeps one clock of milliseconds by reason. A
waiter notes the clock when it joins and takes the difference when it leaves: however often the
reason flips, ten thousand waiters cost nothing a step, and their parts add up to their wait exactly.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stateroom.residency.reasons import WaitReason

__all__ = ["SPELLS_KEPT", "ClosedSpell", "ReasonClock", "Spell"]

SPELLS_KEPT = 64  # of a lane; a waiter's story shows at most 32 events (section 7), its first always


@dataclass(frozen=True, slots=True)
class Spell:
    """A stretch of one reason, in ms of the core's clock; `detail` names the rank or number behind it."""

    reason: WaitReason
    from_ms: int
    detail: str


ClosedSpell = tuple[WaitReason, int, int, str]  # reason, from ms, to ms, detail


class ReasonClock:
    """Milliseconds by reason of one lane, and its last spells."""

    def __init__(self) -> None:
        self.spell: Spell | None = None
        self.spells: deque[Spell] = deque(maxlen=SPELLS_KEPT)
        self._ms: dict[WaitReason, int] = {}

    def change(self, reason: WaitReason | None, detail: str, now_ms: int) -> bool:
        """Starts a spell, or stops the clock with None. True if the reason is another one than before."""
        old = self.spell
        if old is not None and old.reason is reason and old.detail == detail:
            return False
        if old is not None:
            self._ms[old.reason] = self._ms.get(old.reason, 0) + now_ms - old.from_ms
        self.spell = None if reason is None else Spell(reason, now_ms, detail)
        if self.spell is not None:
            self.spells.append(self.spell)
        return old is None or old.reason is not reason

    def read(self, now_ms: int) -> dict[WaitReason, int]:
        """All milliseconds by reason up to now."""
        ms = dict(self._ms)
        if self.spell is not None:
            ms[self.spell.reason] = ms.get(self.spell.reason, 0) + now_ms - self.spell.from_ms
        return ms

    def since(self, joined_ms: int, now_ms: int, first: Spell | None) -> list[ClosedSpell]:
        """The spells that touch the time since a waiter joined, cut to that time.

        `first` is the spell it joined in: it stands first also when the clock has forgotten it since.
        """
        found: list[ClosedSpell] = []
        end_ms = now_ms
        for spell in reversed(self.spells):
            from_ms = max(spell.from_ms, joined_ms)
            found.append((spell.reason, from_ms, end_ms, spell.detail))
            end_ms = from_ms
            if spell.from_ms <= joined_ms:
                break
        if first is not None and end_ms > joined_ms:
            found.append((first.reason, joined_ms, end_ms, first.detail))
        found.reverse()
        return found

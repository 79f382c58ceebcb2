"""What the rank's core wants done; the driver does it, in order."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BuildPool", "Effect", "KeepTerm", "ReplaceLeader", "Scrub"]


@dataclass(frozen=True, slots=True)
class KeepTerm:
    """Persist the highest term heard, and who leads with it, before it is obeyed (rules D1, D6)."""

    term: int
    leader_boot_id: str


@dataclass(frozen=True, slots=True)
class ReplaceLeader:
    """End the ordered stream of the old leader or of its older connection."""

    sentence: str


@dataclass(frozen=True, slots=True)
class BuildPool:
    """Allocate rows x slot bytes, touched, then call `built` (rule B4). 0 bytes: no pool."""

    rows: int
    pool_bytes: int


@dataclass(frozen=True, slots=True)
class Scrub:
    """Zero these rows off the serving loop, then call `scrubbed` (rule C2)."""

    slots: tuple[int, ...]


Effect = KeepTerm | ReplaceLeader | BuildPool | Scrub

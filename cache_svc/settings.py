"""Everything a cache service needs to know, frozen; made by flags, read by the driver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stateroom.residency.parallel import Parallel
from stateroom.residency.rank_state import RankState
from stateroom.residency.sizing import SizingTerms

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """One rank's place, its bytes a slot, its quota, and where it serves."""

    parallel: Parallel
    state: RankState
    terms: SizingTerms
    listen: tuple[str, ...]
    descriptor_socket: Path
    state_dir: Path
    trace_file: Path | None

"""Names one ownership of a slot: (term of the scheduler that chose it, counter), never used twice (C3)."""

from __future__ import annotations

__all__ = ["NO_GENERATION", "Generation"]

Generation = tuple[int, int]  # ordered: a newer ownership compares greater
NO_GENERATION: Generation = (0, 0)

"""Numbers as people say them: "rank 3", "ranks 0-7, 12", "1 slot", "2 slots"."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["counted", "number_ranges", "ranks_text"]


def number_ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers with runs drawn together: 0, 1, 2, 5 is "0-2, 5"."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def ranks_text(ranks: Iterable[int]) -> str:
    """One rank or several, by number."""
    found = tuple(ranks)
    return f"rank{'s' if len(set(found)) > 1 else ''} {number_ranges(found)}"


def counted(count: int, noun: str) -> str:
    """A count with its noun, which takes an s in the plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"

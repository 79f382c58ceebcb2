"""Draws docs/STATES.md from the table in stateroom/residency/states.py: `python docs/draw_states.py`.

A test compares the page with `page()`, so the drawing cannot fall behind the table.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from stateroom.residency.states import HOLDS_SLOT, TRANSITIONS, SequenceEvent, SequenceState, SlotState

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parent / "STATES.md"

_HEAD = """# Life of a sequence

Drawn from the table in [stateroom/residency/states.py](../stateroom/residency/states.py) by
`python docs/draw_states.py`; do not edit. A move that is not in the table is refused and changes nothing.
States with a thick border hold a slot: they count as resident (rule A3).
"""

_SLOTS: dict[SlotState, str] = {
    SlotState.FREE: "may be bound",
    SlotState.BOUND: "has an owner",
    SlotState.QUARANTINED: "released, and a step that uses it may still run (rule C2)",
    SlotState.SCRUBBING: "being zeroed",
    SlotState.RESERVED: "never bound: padding, dummies",
    SlotState.WITHHELD: "beyond the agreed cap, or beyond the rows of the smallest rank",
}


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, _diagram(), _events(), _slots()])


def _diagram() -> str:
    moves: dict[tuple[SequenceState, SequenceState], list[SequenceEvent]] = defaultdict(list)
    for (state, event), after in TRANSITIONS.items():
        moves[state, after].append(event)
    lines = [
        "```mermaid",
        "stateDiagram-v2",
        "    classDef holds stroke-width:4px",
        "    [*] --> WAITING: arrived",
    ]
    for (state, after), events in moves.items():
        names = ", ".join(event.name for event in events)
        lines.append(f"    {state.name} --> {after.name}: {names}")
    lines.append("    RETIRING --> [*]: its last step is done")
    lines += [f"    class {state.name} holds" for state in SequenceState if HOLDS_SLOT[state]]
    return "\n".join([*lines, "```", ""])


def _events() -> str:
    lines = ["| event | meaning |", "|---|---|"]
    return "\n".join([*lines, *(f"| {event.name} | {event.value} |" for event in SequenceEvent), ""])


def _slots() -> str:
    lines = ["## States of a slot on one rank", "", "| state | meaning |", "|---|---|"]
    return "\n".join([*lines, *(f"| {state.name} | {_SLOTS[state]} |" for state in SlotState), ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

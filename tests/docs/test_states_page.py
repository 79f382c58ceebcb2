"""docs/STATES.md is drawn from the table of states, and fresh."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from stateroom.residency.states import TRANSITIONS

ROOT = Path(__file__).parents[2]


def _draw_states() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_states", ROOT / "docs" / "draw_states.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_fresh() -> None:
    drawn = _draw_states()
    assert drawn.PAGE.read_text(encoding="utf-8") == drawn.page(), "run: python docs/draw_states.py"


def test_every_move_of_the_table_is_drawn() -> None:
    text = _draw_states().page()
    for (state, event), after in TRANSITIONS.items():
        line = next(line for line in text.splitlines() if f" {state.name} --> {after.name}:" in line)
        assert event.name in line.split(": ")[1].split(", ")

"""The families of models whose state can be sized: one table, one entry a family."""

from __future__ import annotations

from stateroom.residency.families.find import find_family
from stateroom.residency.families.table import FAMILIES

__all__ = ["FAMILIES", "find_family"]

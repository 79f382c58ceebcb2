"""Which family a config belongs to: by model_type, else by the fields that give it away."""

from __future__ import annotations

from stateroom.residency.config_fields import ConfigError, Fields
from stateroom.residency.families.family import Family
from stateroom.residency.families.table import FAMILIES

__all__ = ["find_family"]


def find_family(fields: Fields) -> Family:
    """The family of a config.

    A new or absent model_type (Qwen's next release) is known by its family's marker fields; one that
    fits no family or several is a ConfigError, never "no recurrent layers".
    """
    model_type = fields.text("model_type") if fields.has("model_type") else None
    for family in FAMILIES:
        if model_type is not None and model_type.lower() in family.model_types:
            return family
    marked = [f for f in FAMILIES if f.markers and all(fields.has(marker) for marker in f.markers)]
    if len(marked) == 1:
        return marked[0]
    known = sorted({name for family in FAMILIES for name in family.model_types})
    raise ConfigError(
        fields.name_of("model_type"),
        model_type,
        "it is of no known family, and nobody knows what state it keeps",
        f"use one of {', '.join(known)}, or add an entry to stateroom/residency/families/table.py",
    )

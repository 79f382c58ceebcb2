"""Configs of well-known models by name, as package data: one JSON file each.

A file holds `hf_id`, `source`, `added` (fields that the source leaves out, with the reason) and `config`,
the part of the model's config.json that sizing reads.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["preset_config", "preset_names"]

_FOLDER = Path(__file__).parent


def preset_names() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def preset_config(name: str) -> dict[str, object] | None:
    """The config of a preset, or None if there is none of that name."""
    if name not in preset_names():
        return None
    document = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    config = document["config"]
    assert isinstance(config, dict), f"preset {name} holds a {type(config).__name__}, not an object"
    return config

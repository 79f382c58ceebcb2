"""JSON schemas of what the command line prints with --json, as package data: NAME.vVERSION.json."""

from __future__ import annotations

from pathlib import Path

__all__ = ["schema_path"]


def schema_path(name: str) -> Path:
    """The file of a schema, "plan.v1" for one."""
    return Path(__file__).parent / f"{name}.json"

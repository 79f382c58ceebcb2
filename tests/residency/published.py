"""Published configs and the bytes that two serving engines compute for them (tests/data)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"
MODEL_NAMES = tuple(sorted(path.stem for path in (DATA / "models").glob("*.json")))

# SSM dtype, conv dtype of the three choices in state_bytes.json
DTYPE_CHOICES = {
    "bf16_ssm": ("bfloat16", "bfloat16"),
    "fp32_ssm": ("float32", "bfloat16"),
    "all_fp32": ("float32", "float32"),
}


def config(name: str) -> dict[str, Any]:
    """The fields of a published config.json, a fresh copy."""
    document: dict[str, Any] = json.loads((DATA / "models" / f"{name}.json").read_text())
    return document["fields"]


@cache
def engine_bytes() -> dict[str, dict[str, Any]]:
    """state_bytes.json by model name."""
    return {entry["name"]: entry for entry in json.loads((DATA / "state_bytes.json").read_text())}

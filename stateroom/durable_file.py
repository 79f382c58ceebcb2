"""A small file that is whole after any crash: written anew, synced, renamed, and its folder synced."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: Path, text: str) -> None:
    """Replaces the file's content. Readers see the old or the new one; OSError if it cannot be kept."""
    fresh = path.with_suffix(".new")
    with open(fresh, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # a rename is lost with the power without it
    finally:
        os.close(folder)

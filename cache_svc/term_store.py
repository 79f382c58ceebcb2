"""The highest term this rank heard, and who led with it, over restarts (rules D1, D6)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from stateroom.durable_file import replace_file

__all__ = ["TermStore", "TermStoreError"]


class TermStoreError(RuntimeError):
    """The term cannot be kept here; the message names file and remedy."""


class TermStore:
    """One small file, replaced atomically and synced before a term is obeyed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "highest-term.json"

    def load(self) -> tuple[int, str]:
        """(term, leader boot id); (0, "") if none was ever heard.

        Says now, and not at the first commit, that the folder cannot be written.
        """
        self._check_folder()
        try:
            kept = json.loads(self.path.read_text())
            return int(kept["term"]), str(kept["leader_boot_id"])
        except FileNotFoundError:
            return 0, ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TermStoreError(
                f"{self.path} cannot be read ({error}): remove it or give another --state-dir"
            ) from None

    def keep(self, term: int, leader_boot_id: str) -> None:
        """On disk when it returns."""
        try:
            replace_file(self.path, json.dumps({"term": term, "leader_boot_id": leader_boot_id}))
        except OSError as error:
            raise self._unwritable(error.strerror) from None

    def _check_folder(self) -> None:
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error.strerror) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise self._unwritable("Permission denied")

    def _unwritable(self, why: str | None) -> TermStoreError:
        return TermStoreError(f"{self.path} cannot be written ({why}): give a writable --state-dir")

"""The term of a statically led group (rule D6): a number in a local file, raised at every start.

The file is locked for the life of the process, so that two schedulers of one group cannot run from
one folder, and synced before the term is used.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

__all__ = ["TermFile", "TermFileError"]


class TermFileError(RuntimeError):
    """The term cannot be held here; the message names file and remedy."""


class TermFile:
    """Use as a context manager; `term` is the raised one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "term"
        self.term = 0
        self._fd = -1

    def __enter__(self) -> TermFile:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise TermFileError(
                f"{self.path} is locked by a running scheduler of this group: stop it or give another --state-dir"
            ) from None
        except OSError as error:
            raise TermFileError(
                f"{self.path} cannot be written ({error.strerror}): give a writable --state-dir"
            ) from None
        text = os.pread(self._fd, 64, 0).decode("ascii", "replace").strip()
        if text and not text.isdigit():
            raise TermFileError(f"{self.path} holds {text!r} and not a number: remove it")
        self.keep(int(text or "0") + 1)
        return self

    def keep(self, term: int) -> None:
        """Writes and syncs a higher term."""
        assert term > self.term, f"term {term} is not above {self.term}"
        self.term = term
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{term}\n".encode(), 0)
        os.fsync(self._fd)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

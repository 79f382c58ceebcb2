"""The term of a statically led group (rule D6): a number in a local file, raised at every start.

The file is locked for the life of the process, so that two schedulers of one group cannot run from
one folder, and synced before the term is used.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from stateroom.durable_file import replace_file

__all__ = ["TermFile", "TermFileError"]


class TermFileError(RuntimeError):
    """The term cannot be held here; the message names file and remedy."""


class TermFile:
    """Use as a context manager; `term` is the raised one. A second file beside it carries the lock."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "term"
        self.term = 0
        self._lock = -1

    def __enter__(self) -> TermFile:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise TermFileError(
                f"{self.path} is locked by a running scheduler of this group: stop it or give another --state-dir"
            ) from None
        except OSError as error:
            raise self._unwritable(error) from None
        self.keep(self._kept() + 1)
        return self

    def _kept(self) -> int:
        """The last term; 0 if there was none."""
        try:
            text = self.path.read_text().strip()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise self._unwritable(error) from None
        if not text.isdigit():
            raise TermFileError(f"{self.path} holds {text!r} and not a number: remove it")
        return int(text)

    def keep(self, term: int) -> None:
        """A higher term, on disk when it returns."""
        assert term > self.term, f"term {term} is not above {self.term}"
        try:
            replace_file(self.path, f"{term}\n")
        except OSError as error:
            raise self._unwritable(error) from None
        self.term = term

    def _unwritable(self, error: OSError) -> TermFileError:
        return TermFileError(f"{self.path} cannot be written ({error.strerror}): give a writable --state-dir")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

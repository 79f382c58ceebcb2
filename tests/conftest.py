"""Folders for tests with real processes and real traces."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder whose name leaves room for a socket path of 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="sr-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def traces_dir() -> Path:
    """Real request traces; STATEROOM_TRACES says where, a clone without them skips."""
    path = Path(os.environ.get("STATEROOM_TRACES") or ROOT.parent / "shared" / "data" / "traces")
    if not path.is_dir():
        pytest.skip("no request traces here: set STATEROOM_TRACES to a folder with azure2023_conv.csv")
    return path

"""The house rules that a machine can hold: format, types, layers, sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LINES_MAX = 320


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("lint-imports", "--no-cache")],
    ids=lambda command: "-".join(command[:2]),
)
def test_tool_is_content(command: tuple[str, ...]) -> None:
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_no_file_grows_past_its_concern() -> None:
    packages = ("stateroom", "stateroom_ops", "scheduler_svc", "cache_svc")
    long = {
        str(path.relative_to(ROOT)): lines
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if "v1" not in path.parts and (lines := path.read_text().count("\n")) > LINES_MAX
    }
    assert not long, f"split these: {long}"

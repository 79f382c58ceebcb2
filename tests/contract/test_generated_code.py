"""The protos are the specification: linted, and the committed code is what they generate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    protos = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "protos/stateroom/v1").glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "protos"]
    command += [f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    for plugin in ("mypy", "mypy_grpc"):
        command += [f"--plugin=protoc-gen-{plugin}={BIN}/protoc-gen-{plugin}", f"--{plugin}_out={tmp_path}"]
    subprocess.run([*command, *protos], cwd=ROOT, check=True, capture_output=True)
    made = {p.name: p.read_text() for p in (tmp_path / "stateroom/v1").iterdir()}
    kept = {
        p.name: p.read_text()
        for p in (ROOT / "stateroom/v1").iterdir()
        if p.suffix in (".py", ".pyi") and p.name != "__init__.py"
    }
    assert sorted(made) == sorted(kept)
    stale = [name for name in made if made[name] != kept[name]]
    assert not stale, f"run `make protos`: {stale} are not what the protos generate"


def test_protos_pass_buf_lint() -> None:
    done = subprocess.run([BIN / "buf", "lint"], cwd=ROOT / "protos", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

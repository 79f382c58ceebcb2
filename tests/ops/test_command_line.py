"""What a user sees for a wrong word: one sentence, a code that is not 0, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stateroom_ops.cli import COMMANDS, main


def _run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_help_and_plan_load_neither_torch_nor_grpc() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from stateroom_ops.cli import main\n"
        "for words in (['--help'], ['plan', '--config', 'qwen3.5-27b', '--quota', '24.86GiB', '--json'], "
        "['up', '--help'], ['replay', '--help'], ['demo', '--help'], ['why', '--help'], ['status', '--help']):\n"
        "    result = CliRunner().invoke(main, words); assert result.exit_code == 0, result.output\n"
        "loaded = {'torch', 'numpy', 'opentelemetry', 'google.protobuf'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_command_has_help_and_json() -> None:
    for name in COMMANDS:
        text = _run(name, "--help").output
        assert "--json" in text, name


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ("replay", "none.csv"),
            1,
            "trace 'none.csv' cannot be read (No such file or directory): give the path",
        ),
        (("replay", "--speed", "0"), 2, "'0' is neither `max` nor a number above 0"),
        (("replay", "--speed", "fast"), 2, "'fast' is neither `max` nor a number above 0"),
        (
            ("replay", "--connect", "unix:/s.sock", "--tp", "2"),
            2,
            "--tp describes a new group and --connect joins one",
        ),
        (("up", "--quota", "much"), 1, "'much' is not a number of bytes: write it as 24.86GiB"),
        (("up", "--quota", "0"), 1, "No sequence fits on rank 0: its quota is 0"),
        (("up", "--quota", "0=64MiB"), 1, "rank 1 has none"),
        (("up", "--tp", "3"), 1, "divide"),
        (("up", "--pp-layers", "1,2"), 1, "adds up to 3 and the model has 64 layers"),
        (("up", "--config", "no-such-model"), 1, "it is neither a file nor a preset"),
        (("up", "--name", "a/b"), 1, "--name is 'a/b': use up to 40 letters"),
        (("up", "--run-dir", "/tmp/" + "x" * 120), 1, "107 are possible: use a shorter folder"),
        (("up", "--max-batch-size", "0"), 2, "0 is not in the range x>=1"),
        (("status", "--run-dir", "/nonexistent"), 1, "no local group runs in '/nonexistent': start one"),
        (("status", "--connect", "nonsense"), 1, "address 'nonsense' is neither unix:/path nor host:port"),
        (
            ("why", "req-1", "--run-dir", "/nonexistent"),
            1,
            "no group runs and no trace lies in '/nonexistent'",
        ),
        (("why", "--connect", "unix:/x.sock"), 2, "--connect needs the ID of a sequence"),
        (("why", "a", "--connect", "unix:/x.sock", "--trace", "t"), 2, "give one of the two"),
        (("why", "a", "--trace", "/none.jsonl"), 1, "trace '/none.jsonl' cannot be read (No such file"),
        (("demo", "--trace", "/none.csv"), 1, "trace '/none.csv' cannot be read"),
        (("no-such",), 2, "No such command 'no-such'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_one_sentence(words: tuple[str, ...], code: int, sentence: str) -> None:
    result = _run(*words)
    assert result.exit_code == code, result.output
    assert sentence in result.output
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_scheduler_that_is_not_there_is_one_sentence(short_dir: Path) -> None:
    for words in (("status",), ("why", "req-1")):
        result = _run(*words, "--connect", f"unix:{short_dir}/none.sock")
        assert result.exit_code == 1
        assert f"no scheduler answers at unix:{short_dir}/none.sock" in result.output
        assert "start it or correct the address" in result.output


def test_a_malformed_config_names_its_field(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "qwen3_5", "num_hidden_layers": "many"}))
    result = _run("up", "--config", str(path))
    assert result.exit_code == 1
    assert "num_hidden_layers" in result.output
    path.write_text("{")
    assert "line 1 is not JSON" in _run("up", "--config", str(path)).output

"""Where local groups live: private folders, records, leftovers of a killed owner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateroom_ops.run_dir import (
    GroupRecord,
    RunDirError,
    base_dir,
    end_leftovers,
    latest_trace,
    read_record,
    remove_past_runs,
    running_groups,
    safe_dir,
    write_record,
)


def _record(folder: Path, owner_pid: int, children: tuple[int, ...] = ()) -> GroupRecord:
    record = GroupRecord(
        folder.name, owner_pid, f"unix:{folder}/s", ("unix:a",), f"{folder}/trace.jsonl", children
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_record(folder, record)
    return record


def _dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = _record(tmp_path / "g", 12, (1, 2))
    assert read_record(tmp_path / "g") == record


def test_a_record_that_is_broken_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "group.json").write_text('{"name": ')
    assert read_record(tmp_path) is None
    assert read_record(tmp_path / "none") is None


def test_groups_of_dead_owners_do_not_run(tmp_path: Path) -> None:
    alive = _record(tmp_path / "alive", os.getpid())
    _record(tmp_path / "dead", _dead_pid())
    assert running_groups(tmp_path) == [alive]
    assert running_groups(tmp_path / "none") == []


def test_folders_are_private(tmp_path: Path) -> None:
    assert safe_dir(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(RunDirError, match=r"has mode 0755 of user \d+: sockets need a folder of yours"):
        safe_dir(tmp_path / "open")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="cannot be made"):
        safe_dir(tmp_path / "file" / "x")


def test_a_folder_of_a_running_group_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        _record(tmp_path / "g", other.pid)
        with pytest.raises(
            RunDirError, match=r"group 'g' runs already in .* \(process \d+\): stop it, join it"
        ):
            end_leftovers(tmp_path / "g")
        other.communicate(b"\n")


def test_services_whose_owner_was_killed_are_ended_and_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "g"
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen([*command, str(folder)]) as ours, subprocess.Popen(command) as another:
        _record(folder, _dead_pid(), (ours.pid, another.pid))
        end_leftovers(folder)
        assert ours.wait(5) == -9
        assert another.poll() is None
        another.kill()


def test_past_replays_are_removed_but_the_newest_and_named_groups_stay(tmp_path: Path) -> None:
    for age, name in enumerate(("mine", "replay-1", "replay-2", "demo-3")):
        _record(tmp_path / name, _dead_pid())
        (tmp_path / name / "trace.jsonl").write_text("{}\n")
        os.utime(tmp_path / name / "trace.jsonl", (1000 + age, 1000 + age))
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    _record(tmp_path / "replay-9", os.getpid())
    assert latest_trace(tmp_path) == tmp_path / "demo-3" / "trace.jsonl"
    remove_past_runs(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo-3", "mine", "replay-9"]


def test_base_dir_is_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert base_dir() == tmp_path / "stateroom"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    assert base_dir().name == f"stateroom-{os.getuid()}"

"""Where local groups live: one private folder each, with a record by which other commands find them.

$XDG_RUNTIME_DIR/stateroom/NAME/   (or /tmp/stateroom-UID/NAME/)
  group.json  scheduler.sock  rank0.sock ...  rank0.log ...  trace.jsonl
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = [
    "GroupRecord",
    "RunDirError",
    "base_dir",
    "end_leftovers",
    "latest_trace",
    "read_record",
    "remove_past_runs",
    "running_groups",
    "safe_dir",
    "write_record",
]

RECORD = "group.json"
TRACE = "trace.jsonl"
_PAST_RUN = re.compile(r"(replay|demo)-\d+")  # names that no user gave
LEFTOVER_SECONDS_MAX = 5.0


class RunDirError(ValueError):
    """A folder that cannot be used; one sentence with path and remedy."""


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """What group.json says of a running or past group."""

    name: str
    owner_pid: int
    scheduler_address: str
    rank_addresses: tuple[str, ...]
    trace_file: str
    child_pids: tuple[int, ...] = field(default=())


def base_dir() -> Path:
    """The folder of all groups of this user; it need not exist."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "stateroom"
    return Path(tempfile.gettempdir()) / f"stateroom-{os.getuid()}"


def safe_dir(path: Path) -> Path:
    """Makes the folder with mode 0700; one that belongs to or is open to others is refused."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise RunDirError(
            f"run folder {str(path)!r} cannot be made ({error.strerror}): give --run-dir another one"
        ) from None
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise RunDirError(
            f"run folder {str(path)!r} has mode {stat.S_IMODE(found.st_mode):04o} of user {found.st_uid}: "
            "sockets need a folder of yours with mode 0700, chmod it or give --run-dir another one"
        )
    return path


def write_record(run_dir: Path, record: GroupRecord) -> None:
    """Writes group.json whole or not at all."""
    temporary = run_dir / f".{RECORD}.new"
    temporary.write_text(json.dumps(asdict(record), indent=2) + "\n")
    temporary.replace(run_dir / RECORD)


def read_record(run_dir: Path) -> GroupRecord | None:
    """The record, or None where there is none that can be read."""
    try:
        found = json.loads((run_dir / RECORD).read_text())
        return GroupRecord(
            name=str(found["name"]),
            owner_pid=int(found["owner_pid"]),
            scheduler_address=str(found["scheduler_address"]),
            rank_addresses=tuple(found["rank_addresses"]),
            trace_file=str(found["trace_file"]),
            child_pids=tuple(found["child_pids"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running_groups(base: Path | None = None) -> list[GroupRecord]:
    """Groups whose owner lives, the newest first."""
    folders = sorted((base or base_dir()).glob(f"*/{RECORD}"), key=_mtime, reverse=True)
    records = [read_record(path.parent) for path in folders]
    return [record for record in records if record is not None and is_alive(record.owner_pid)]


def latest_trace(base: Path | None = None) -> Path | None:
    """The trace file that was written last."""
    return max((base or base_dir()).glob(f"*/{TRACE}"), key=_mtime, default=None)


def remove_past_runs(base: Path) -> None:
    """Folders of replays and demos that are over, all but the newest, whose trace is still to be asked."""
    folders = [path.parent for path in base.glob(f"*/{RECORD}") if _PAST_RUN.fullmatch(path.parent.name)]
    over = [f for f in folders if (record := read_record(f)) is not None and not is_alive(record.owner_pid)]
    for folder in sorted(over, key=_mtime)[:-1]:
        end_leftovers(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def is_alive(pid: int) -> bool:
    """Whether a process of this user has that id."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def end_leftovers(run_dir: Path) -> None:
    """Ends services of a group in this folder whose owner was killed; only those whose command names it."""
    record = read_record(run_dir)
    if record is None:
        return
    if is_alive(record.owner_pid) and record.owner_pid != os.getpid():
        raise RunDirError(
            f"group {record.name!r} runs already in {str(run_dir)!r} (process {record.owner_pid}): "
            "stop it, join it with --connect, or give --name another one"
        )
    leftovers = [pid for pid in record.child_pids if str(run_dir) in _command_of(pid)]
    for pid in leftovers:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + LEFTOVER_SECONDS_MAX
    while any(str(run_dir) in _command_of(pid) for pid in leftovers) and time.monotonic() < deadline:
        time.sleep(0.02)


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

"""How much memory can still be taken here: the machine's or the container's, the smaller one (P05)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_bytes"]

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def available_bytes(cgroup: Path = _CGROUP, meminfo: Path = _MEMINFO) -> int:
    """Bytes. Pages that only cache files count as available: the kernel drops them when it is asked."""
    available = _fields(meminfo)["MemAvailable:"] * 1024
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is not None and used is not None:
        cached = _fields(cgroup / "memory.stat")
        used -= cached.get("inactive_file", 0) + cached.get("active_file", 0)
        available = min(available, limit - max(0, used))
    return available


def _number(path: Path) -> int | None:
    """None where there is no such limit ("max" or no file)."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _fields(path: Path) -> dict[str, int]:
    """Lines of "name number ..."."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}

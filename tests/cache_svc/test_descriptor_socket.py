"""The side socket takes nothing that is not its own, and says in one sentence what is wrong with its path."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from cache_svc import descriptor_socket
from cache_svc.descriptor_socket import DescriptorSocket, peer_uid
from stateroom.channel import AddressError


def _listening(path: Path) -> DescriptorSocket:
    side = DescriptorSocket(path, "boot-1", lambda: None)
    side.listen()
    return side


def test_a_file_at_its_path_is_not_deleted(short_dir: Path) -> None:
    path = short_dir / "notes.txt"
    path.write_text("precious")
    with pytest.raises(AddressError, match="is no socket: give --descriptor-socket another path"):
        _listening(path)
    assert path.read_text() == "precious"


def test_the_socket_of_a_running_rank_is_not_taken(short_dir: Path) -> None:
    first = _listening(short_dir / "rank.pool")
    with pytest.raises(AddressError, match="in use by a running process"):
        _listening(short_dir / "rank.pool")
    assert first.path.exists()
    first.close()
    assert not first.path.exists()


def test_a_dead_socket_is_taken_over(short_dir: Path) -> None:
    path = short_dir / "rank.pool"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    side = _listening(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    side.close()


def test_a_missing_folder_is_made_for_its_owner_only(short_dir: Path) -> None:
    side = _listening(short_dir / "run" / "rank.pool")
    assert stat.S_IMODE(side.path.parent.stat().st_mode) == 0o700
    side.close()


@pytest.mark.parametrize(
    ("path", "words"),
    [("x" * 120, "107 are possible"), ("file/rank.pool", "--descriptor-socket")],
    ids=["a long path", "a folder that cannot be made"],
)
def test_a_path_that_cannot_be_had(short_dir: Path, path: str, words: str) -> None:
    (short_dir / "file").write_text("")
    with pytest.raises(AddressError, match=words):
        _listening(short_dir / path)


def test_c07_the_kernel_says_who_is_at_the_other_end() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert peer_uid(here) == os.geteuid()


@pytest.mark.parametrize(("uid", "handed"), [(os.getuid(), 1), (0, 1), (os.getuid() + 1, 0), (2**32 - 2, 0)])
async def test_c07_only_its_own_user_and_root_get_the_pool(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, uid: int, handed: int
) -> None:
    """Where the mode of the socket does not hold: a shared folder, a chmod by hand."""
    monkeypatch.setattr(descriptor_socket, "peer_uid", lambda connection: uid)
    with socket.socket() as pool:  # any descriptor will do
        side = DescriptorSocket(short_dir / "rank.pool", "boot-1", pool.fileno)
        assert await _handed_out(side) == handed


async def test_b04_before_a_pool_stands_there_is_nothing_to_hand_out(short_dir: Path) -> None:
    side = DescriptorSocket(short_dir / "rank.pool", "boot-1", lambda: None)
    assert await _handed_out(side) == 0
    assert side.attached_count == 0


async def _handed_out(side: DescriptorSocket) -> int:
    side.listen()
    serving = asyncio.ensure_future(side.serve())
    try:
        return await asyncio.to_thread(_ask, side.path)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def _ask(path: Path) -> int:
    """Descriptors that a worker gets."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as worker:
        worker.settimeout(10)
        worker.connect(str(path))
        descriptors = socket.recv_fds(worker, 64, 1)[1]
        for descriptor in descriptors:
            os.close(descriptor)
        return len(descriptors)

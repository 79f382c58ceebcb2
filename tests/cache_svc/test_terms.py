"""Terms over a real socket and a real file: kept before they are obeyed, heard even where refused (D1, D6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cache_svc.term_store import TermStore, TermStoreError
from stateroom.residency.reasons import ErrorReason
from stateroom.v1 import cache_service_pb2 as pb
from tests.cache_svc.service import LEADER, commit, reason_of, service


async def test_d01_a_refused_commit_is_heard_and_its_term_kept(short_dir: Path) -> None:
    """Once the term was obeyed and never written: a restarted rank would have followed the old leader."""
    async with service(short_dir, cap=4) as running:
        await commit(running, 4)
        refused = commit(running, 9, term=2, leader="leader-2")
        assert await reason_of(refused) is ErrorReason.QUOTA_EXCEEDED
        kept = json.loads((short_dir / "state" / "highest-term.json").read_text())
        assert kept == {"term": 2, "leader_boot_id": "leader-2"}
        assert await reason_of(commit(running, 4)) is ErrorReason.STALE_TERM


async def test_d04_a_refused_commit_of_a_higher_term_ends_the_old_stream(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        await commit(running, 4)
        old = running.stub.Bind()
        await old.write(pb.BindRequest(term=1, leader_boot_id=LEADER))
        await old.read()
        assert await reason_of(commit(running, 9, term=2, leader="leader-2")) is ErrorReason.QUOTA_EXCEEDED
        assert await reason_of(old.read()) is ErrorReason.STREAM_REPLACED


async def test_d01_a_term_that_cannot_be_kept_is_not_obeyed(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: TermStore, term: int, leader_boot_id: str) -> None:
        raise TermStoreError("the disk is full")

    async with service(short_dir, cap=4) as running:
        with monkeypatch.context() as patched:
            patched.setattr(TermStore, "keep", full)
            for _ in range(2):  # not at the second try either
                assert await reason_of(commit(running, 4)) is ErrorReason.NOT_READY
            assert (running.driver.core.term, running.driver.pool) == (0, None)
        assert (await commit(running, 4)).rows == 5


def test_a_state_folder_that_cannot_be_made_is_said_at_start(short_dir: Path) -> None:
    (short_dir / "file").write_text("")
    with pytest.raises(TermStoreError, match="give a writable --state-dir"):
        TermStore(short_dir / "file" / "state").load()


def test_d01_a_damaged_file_is_named_and_not_read_as_term_0(short_dir: Path) -> None:
    store = TermStore(short_dir)
    store.path.write_text('{"term": ')
    with pytest.raises(TermStoreError, match=r"highest-term\.json cannot be read"):
        store.load()

"""The worker's side of the pool: no copy, no name, no wrong handle (rules C3, C6, C7)."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cache_svc import convert
from stateroom.attach import attach, check_rows
from stateroom.client import Handle
from stateroom.errors import StateroomError
from stateroom.pool_views import descriptor_greeting
from stateroom.residency.layout import RowLayout
from stateroom.residency.reasons import ErrorReason
from stateroom.v1 import cache_service_pb2 as pb
from tests.cache_svc.service import Service, commit, service

WRITE = """
import sys
from stateroom.attach import attach
pool = attach(sys.argv[1])
pool.view(0, "recurrent")[2] = 42.0
print("attached", flush=True)
sys.stdin.readline()
"""


async def test_c07_a_write_in_another_process_is_seen_here(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        await commit(running, 4)
        pool = await asyncio.to_thread(attach, running.address)
        assert (pool.rows, pool.boot_id) == (5, running.driver.core.boot_id)
        view = pool.view(0, "recurrent")
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WRITE, running.address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert worker.stdout is not None
        assert (await worker.stdout.readline()).strip() == b"attached"
        assert view[2].eq(42.0).all()
        assert not view[1].any()
        assert running.socket.attached_count == 2
        worker.kill()  # a worker that dies without a word is not counted any more
        await worker.wait()
        await _until_attached(running, 1)
        pool.close()
        await _until_attached(running, 0)


async def _until_attached(running: Service, count: int) -> None:
    for _ in range(10_000):
        if running.socket.attached_count == count:
            return
        await asyncio.sleep(0.001)  # the end of a socket comes by the loop
    raise AssertionError(f"{running.socket.attached_count} workers are attached, not {count}")


async def test_c07_the_descriptor_socket_is_its_owners_only(short_dir: Path) -> None:
    async with service(short_dir) as running:
        await commit(running, 4)
        await asyncio.to_thread(attach, running.address)
        assert stat.S_IMODE(os.stat(running.socket.path).st_mode) == 0o600


async def test_c03_only_handles_of_this_pool_become_rows(short_dir: Path) -> None:
    """L09 too: -1, a reserved row and one beyond the pool never index it."""
    async with service(short_dir, cap=4) as running:
        await commit(running, 4)
        pool = await asyncio.to_thread(attach, running.address)
        boot_id = pool.boot_id
        assert pool.check(Handle(3, (1, 1), (boot_id,)), rank=0) == 3
        faults = {
            ErrorReason.WRONG_BOOT_ID: [Handle(3, (1, 1), ("boot-0",)), Handle(3, (1, 1), ())],
            ErrorReason.SLOT_OUT_OF_RANGE: [Handle(slot, (1, 1), (boot_id,)) for slot in (0, -1, 5)],
        }
        for reason, handles in faults.items():
            for handle in handles:
                with pytest.raises(StateroomError) as refused:
                    pool.check(handle, rank=0)
                assert refused.value.reason is reason
        with pytest.raises(KeyError, match="holds layers"):
            pool.view(99, "conv")
        pool.close()


async def test_c03_a_service_that_restarted_during_the_attach_does_not_pass_for_the_old_one(
    short_dir: Path,
) -> None:
    """The answer was of one process and the descriptor of the next: handles of the first would have passed."""
    async with service(short_dir) as running:
        await commit(running, 4)
        running.socket._greeting = descriptor_greeting("boot-of-the-next-one")
        with pytest.raises(StateroomError, match="has restarted meanwhile") as refused:
            await asyncio.to_thread(attach, running.address)
        assert refused.value.reason is ErrorReason.WRONG_BOOT_ID


async def test_c06_a_layout_whose_hash_is_not_its_own_is_refused(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(short_dir) as running:
        await commit(running, 4)
        honest = convert.pool_layout

        def shifted(layout: RowLayout, rows: int, reserved_slots: int) -> pb.PoolLayout:
            message = honest(layout, rows, reserved_slots)
            message.tensors[0].offset_bytes += 256
            return message

        monkeypatch.setattr(convert, "pool_layout", shifted)
        with pytest.raises(StateroomError, match="its tensors make") as refused:
            await asyncio.to_thread(attach, running.address)
        assert refused.value.reason is ErrorReason.LAYOUT_DIFFERS


async def test_a_refused_attach_leaves_no_descriptor(short_dir: Path) -> None:
    async with service(short_dir) as running:
        await commit(running, 4)
        running.socket._greeting = b"another"
        await asyncio.to_thread(_refused_attach, running.address)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await asyncio.to_thread(_refused_attach, running.address)
        await _until_attached(running, 0)
        assert len(os.listdir("/proc/self/fd")) <= before


def _refused_attach(address: str) -> None:
    with pytest.raises(StateroomError):
        attach(address)


async def test_s08_a_rank_without_recurrent_layers_has_nothing_to_attach(short_dir: Path) -> None:
    async with service(short_dir, attention_only=True) as running:
        await commit(running, 4)
        with pytest.raises(StateroomError) as refused:
            await asyncio.to_thread(attach, running.address)
        assert refused.value.reason is ErrorReason.NO_POOL


async def test_b04_pool_and_session_have_one_number(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        await commit(running, 4)
        pool = await asyncio.to_thread(attach, running.address)
        check_rows(pool, seats=4, reserved_slots=1)
        check_rows(pool, seats=2, reserved_slots=1)  # the cap has fallen since (rule B8)
        with pytest.raises(
            StateroomError, match="5 rows with 1 reserved and the session says 5 seats"
        ) as differ:
            check_rows(pool, seats=5, reserved_slots=1)
        assert differ.value.reason is ErrorReason.NUMBERS_DIFFER
        pool.close()


def test_attach_to_nobody_is_one_sentence(short_dir: Path) -> None:
    with pytest.raises(StateroomError):
        attach(f"unix:{short_dir}/nobody.sock")


def test_the_residency_package_loads_neither_torch_nor_grpc() -> None:
    check = "import sys, stateroom.residency.plan; sys.exit(bool({'torch', 'grpc'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0

"""A quota that changes, and something that goes wrong at the same time (rules B3, B5, B8, D3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stateroom.attach import attach, check_rows
from stateroom.client import Session
from stateroom_ops.operator_client import OperatorClient, list_slots, set_quota
from tests.services.groups import fill, group, small

pytestmark = [pytest.mark.processes, pytest.mark.timeout(100)]


async def _until_cap(operator: OperatorClient, session: Session, cap: int) -> None:
    while (await operator.describe()).agreed.bounded.slots_count != cap:
        await session.wait(0.02)


async def _until_held(session: Session, count: int, step: int) -> int:
    while len(session.held) != count:
        step = (await session.step(completed_step=step)).step
        await session.wait(0.02)
    return step


async def test_b08_no_bind_overtakes_a_rise(short_dir: Path) -> None:
    """A rise made two refused binds on every rank once, and as many needless readings of the ledger."""
    settings = small(short_dir, cap=4)
    slot_bytes = settings.plan().ranks[0].state.slot_bytes
    async with group(settings) as (_, session, operator):
        step = await fill(session, [f"q{n}" for n in range(4)])
        for turn in range(3):
            await set_quota(settings.rank_addresses[0], 3 * slot_bytes, "")
            await _until_cap(operator, session, 2)
            for name in list(session.held)[2:]:
                session.finish(name)
            session.submit(f"a{turn}", 16, 8)
            session.submit(f"b{turn}", 16, 8)
            step = (await session.step(completed_step=step)).step
            step = (await session.step(completed_step=step)).step
            await set_quota(settings.rank_addresses[0], 5 * slot_bytes, "")
            step = await _until_held(session, 4, step)
        for address in settings.rank_addresses:
            listed = await list_slots(address)
            assert (listed.counts.bound, dict(listed.refused_by_reason)) == (4, {})


async def test_d03_a_scheduler_that_starts_after_a_raise_agrees_within_the_rows_that_stand(
    short_dir: Path,
) -> None:
    """It agreed on more than stands, the ranks refused, and the group stayed pending for ever once."""
    settings = small(short_dir, cap=4)
    slot_bytes = settings.plan().ranks[0].state.slot_bytes
    async with group(settings) as (running, session, operator):
        await fill(session, ["q0"])
        answer = await set_quota(settings.rank_addresses[0], 100 * slot_bytes, "")
        assert "restart all ranks of the group together" in answer.sentence
        running.kill()
        await running.next_death()
        await running.restart()
        await running.wait_ready(30)
        described = await operator.describe()
        assert described.agreed.bounded.slots_count == 4
        assert "restart the group to get 32" in described.sentence
        await asyncio.wait_for(session.reconnected(), 30)
        assert list(session.held) == ["q0"]


async def test_b08_at_a_cap_of_0_residents_end_in_peace_though_the_scheduler_starts_again(
    short_dir: Path,
) -> None:
    settings = small(short_dir, cap=3)
    slot_bytes = settings.plan().ranks[0].state.slot_bytes
    async with group(settings) as (running, session, operator):
        await fill(session, ["q0", "q1"])
        await set_quota(settings.rank_addresses[0], 1, "")
        await _until_cap(operator, session, 0)
        while any(r.report.agreed.bounded.slots_count for r in (await operator.describe()).ranks):
            await session.wait(0.05)  # every rank enforces it (rule B3) and says so at its next word
        running.kill()
        await running.next_death()
        await running.restart()
        await asyncio.wait_for(session.reconnected(), 30)
        session.finish("q0")
        step = (await session.step()).step
        step = (await session.step(completed_step=step)).step
        while (await list_slots(settings.rank_addresses[1])).counts.bound != 1:
            await session.wait(0.05)
        assert list(session.held) == ["q1"]
        await set_quota(settings.rank_addresses[0], 4 * slot_bytes, "")
        await _until_cap(operator, session, 3)
        session.submit("q2", 16, 8)
        await _until_held(session, 2, step)


async def test_b05_every_warm_up_batch_fits_in_the_rows_that_are_attached(short_dir: Path) -> None:
    settings = small(short_dir, cap=5, warmup=",".join(str(2**n) for n in range(10)))
    async with group(settings) as (_, session, _operator):
        info = session.info
        assert info.warmup_batches == (1, 2, 4, 5)
        for rank in info.ranks:
            pool = await asyncio.to_thread(attach, rank.address)
            check_rows(pool, info.seats, info.reserved_slots)
            assert pool.rows == info.seats + info.reserved_slots == 6  # rule B4
            for batch in info.warmup_batches:  # a row a sequence, as an engine's warm-up takes them
                rows = pool.bytes.view(pool.rows, -1)[info.reserved_slots : info.reserved_slots + batch]
                assert len(rows) == batch
            pool.close()

"""The quota of a rank changes while sequences run (rules B6, B7, B8; scenario A25)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from stateroom.client import Session
from stateroom.errors import StateroomError
from stateroom.residency.reasons import ErrorReason
from stateroom_ops.operator_client import OperatorClient, list_slots, set_quota
from tests.services.groups import fill, group, small

pytestmark = [pytest.mark.processes, pytest.mark.timeout(100)]


async def _until_cap(operator: OperatorClient, session: Session, cap: int) -> None:
    while (await operator.describe()).agreed.bounded.slots_count != cap:
        await session.wait(0.05)


async def test_a25_the_cap_falls_and_rises_and_no_resident_is_ended(short_dir: Path) -> None:
    settings = small(short_dir, cap=6)
    slot_bytes = settings.plan().ranks[0].state.slot_bytes
    async with group(settings) as (_, session, operator):
        step = await fill(session, [f"q{n}" for n in range(9)])
        assert (len(session.held), len(session.waiting)) == (6, 3)
        lowered = await set_quota(settings.rank_addresses[0], 4 * slot_bytes, "")
        assert (lowered.affords.bounded.slots_count, lowered.built_slots) == (3, 6)
        await _until_cap(operator, session, 3)
        assert (await operator.describe()).residents == 6  # rule B8: nobody is ended
        session.finish("q0")
        session.finish("q1")
        for _ in range(3):
            step = (await session.step(completed_step=step)).step
            await session.settle()
        described = await operator.describe()
        assert (described.residents, dict(described.waiting_by_reason)) == (4, {"RESIDENCY_CAP": 3})
        slots = await list_slots(settings.rank_addresses[1])  # the agreed cap holds on every rank (rule B3)
        assert (slots.counts.rows, slots.counts.bound, list(slots.integrity_errors)) == (7, 4, [])
        raised = await set_quota(settings.rank_addresses[0], 100 * slot_bytes, "")
        assert "restart all ranks of the group together to hold more than 6" in raised.sentence
        await _until_cap(operator, session, 6)
        while len(session.held) < 6:
            step = (await session.step(completed_step=step)).step
            await session.wait(0.05)
        assert (await operator.describe()).residents == 6


async def test_b07_a_cap_of_0_is_one_error_that_says_what_to_change(short_dir: Path) -> None:
    settings = small(short_dir, cap=2)
    async with group(settings) as (_, session, operator):
        session.submit("first", prompt_tokens=16, max_output_tokens=4)
        await session.step()
        await set_quota(settings.rank_addresses[0], 1000, "")
        await _until_cap(operator, session, 0)
        assert not await operator.is_ready()
        session.submit("late", prompt_tokens=16, max_output_tokens=4)
        decisions = await session.step()
        assert [(r.sequence_id, r.reason) for r in decisions.rejections] == [("late", "DEMAND_EXCEEDS_CAP")]
        with pytest.raises(StateroomError, match="No sequence fits on rank 0: its quota is") as refused:
            await Session.connect(settings.scheduler_address, executor="second", timeout_s=5)
        assert refused.value.reason is ErrorReason.NOTHING_FITS
        assert "--quota" in refused.value.message


async def _stateroom(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stateroom_ops.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_stateroom_quota_says_what_follows(short_dir: Path) -> None:
    settings = small(short_dir, cap=4)
    size = str(settings.plan().ranks[0].state.slot_bytes * 3)
    joined = ("--connect", settings.scheduler_address)
    async with group(settings) as (_, session, operator):
        code, output = await _stateroom("quota", "--rank", "0", size, *joined, "--json")
        assert code == 0, output
        answer = json.loads(output)
        assert (answer["affords"], answer["built_slots"], answer["sentence"]) == (2, 4, "2 sequences fit")
        await _until_cap(operator, session, 2)
        for bad in (("7", size), ("0", "x"), ("0", "0")):
            code, output = await _stateroom("quota", "--rank", *bad, *joined)
            assert code != 0
            assert "Traceback" not in output

"""The origin's numbers over real processes: Qwen3.5-27B, 24.86 GiB, 512 asked (scenarios S01, S02).

The arithmetic is the real config's; the pool is that of a twin with narrower heads and the quota that
gives the same rows, so that a laptop can build it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stateroom.client import Session
from stateroom.residency.model import read_model
from stateroom.residency.parallel import Parallel
from stateroom.residency.quantity import parse_bytes
from stateroom.residency.rank_state import StateOptions, rank_state
from stateroom.residency.sizing import SizingTerms, raw_slots
from stateroom.residency.twin import scaled_quota
from stateroom_ops.group_settings import GroupSettings, twin_config
from stateroom_ops.local_group import LocalGroup
from stateroom_ops.operator_client import OperatorClient, list_slots
from stateroom_ops.presets import preset_config

pytestmark = [pytest.mark.processes, pytest.mark.timeout(100)]

QUOTA_BYTES = parse_bytes("24.86GiB")
ASKED = 512
BF16 = StateOptions(ssm_dtype="bfloat16")


def _slot_bytes(config: dict[str, object]) -> int:
    return rank_state(read_model(config), Parallel(), BF16).slot_bytes


def _real_config() -> dict[str, object]:
    config = preset_config("qwen3.5-27b")
    assert config is not None
    return dict(config)


def _settings(folder: Path, *quota_bytes: int, **changes: object) -> GroupSettings:
    values: dict[str, object] = {
        "config": twin_config(factor=16),
        "quota_bytes": quota_bytes,
        "run_dir": folder / "o",
        "name": "origin",
        "max_batch_size": ASKED,
        "max_tokens": 65_536,
        "ssm_dtype": "bfloat16",
        "warmup": ",".join(map(str, range(1, ASKED + 1))),
    }
    return GroupSettings(**{**values, **changes})  # type: ignore[arg-type]


@asynccontextmanager
async def _group(settings: GroupSettings):
    async with LocalGroup(settings, lambda line: None):
        session = await Session.connect(settings.scheduler_address, executor="origin", timeout_s=30)
        async with OperatorClient(settings.scheduler_address) as operator:
            yield session, operator
        await session.close()


async def _submit_all(session: Session) -> None:
    for number in range(ASKED):
        session.submit(f"q{number}", prompt_tokens=16, max_output_tokens=4)
    await session.step()
    await session.settle()
    await session.step(completed_step=1)


async def _finish_all(session: Session) -> int:
    """Everything that is held ends, step after step, until nothing waits; most residents seen."""
    most, step = 0, 2
    while session.held or session.waiting:
        most = max(most, len(session.held))
        for name in list(session.held):
            session.finish(name)
        step = (await session.step(completed_step=step)).step
        await session.settle()
        if session.waiting and not session.held:
            await session.wait(0.2)
    await session.step(completed_step=step)  # the last fence
    return most


def test_s01_the_real_config_affords_340_rows() -> None:
    config = _real_config()
    slot_bytes = _slot_bytes(config)
    assert slot_bytes == 78_446_592
    assert QUOTA_BYTES == 26_693_221_744
    assert raw_slots(SizingTerms(QUOTA_BYTES, slot_bytes, reserved_slots=1)) == 339
    fp32 = rank_state(read_model(config), Parallel(), StateOptions())
    assert (fp32.slot_bytes, QUOTA_BYTES // fp32.slot_bytes) == (153_944_064, 173)


async def test_s01_512_asked_339_resident_173_wait_then_all_finish(short_dir: Path) -> None:
    twin_slot_bytes = _slot_bytes(dict(twin_config(factor=16)))
    quota_bytes = scaled_quota(QUOTA_BYTES, _slot_bytes(_real_config()), twin_slot_bytes)
    settings = _settings(short_dir, quota_bytes)
    async with _group(settings) as (session, operator):
        assert (session.info.seats, session.info.reserved_slots, session.info.unbounded) == (339, 1, False)
        assert session.info.warmup_batches == tuple(range(1, 340))  # rule B5
        await _submit_all(session)
        described = await operator.describe()
        assert (described.residents, described.waiting, described.asked) == (339, 173, ASKED)
        assert dict(described.waiting_by_reason) == {"RESIDENCY_CAP": 173}
        assert list(described.limiting_ranks) == [0]
        assert "limited by rank 0" in described.sentence
        why = await operator.explain("q511")
        assert (why.cap, why.residents, why.position) == (339, 339, 172)
        assert "RESIDENCY_CAP (cap 339, limited by rank 0)" in why.sentence
        assert await _finish_all(session) == 339
        while (slots := await list_slots(settings.rank_addresses[0])).counts.bound:
            await session.wait(0.05)  # the releases are on their way
        assert (slots.counts.rows, list(slots.integrity_errors)) == (340, [])
        assert (await operator.describe()).peak_residents == 339


async def test_s02_quota_for_513_rows_is_unbounded_and_one_byte_less_is_511(short_dir: Path) -> None:
    needed_bytes = (ASKED + 1) * _slot_bytes(dict(twin_config(factor=16)))
    async with _group(_settings(short_dir, needed_bytes)) as (session, operator):
        assert (session.info.unbounded, session.info.seats) == (True, ASKED)
        await _submit_all(session)
        assert (await operator.describe()).residents == ASKED
        assert (await list_slots(f"unix:{short_dir}/o/rank0.sock")).counts.rows == ASKED + 1
    async with _group(_settings(short_dir, needed_bytes - 1, run_dir=short_dir / "p")) as (session, operator):
        assert (session.info.unbounded, session.info.seats) == (False, ASKED - 1)
        assert (await operator.describe()).agreed.bounded.slots_count == ASKED - 1


async def test_s24_a_group_of_attention_only_ranks_is_unbounded(short_dir: Path) -> None:
    config = dict(twin_config(factor=16))
    config["layer_types"] = ["full_attention"] * int(str(config["num_hidden_layers"]))
    config.pop("full_attention_interval", None)
    settings = _settings(short_dir, 2**20, 2**20, config=config, pp_size=2, max_batch_size=8)
    async with _group(settings) as (session, operator):
        assert (session.info.unbounded, session.info.seats) == (True, 16)
        assert not any(rank.has_pool for rank in session.info.ranks)
        described = await operator.describe()
        assert [rank.report.local.WhichOneof("answer") for rank in described.ranks] == ["unbounded"] * 2

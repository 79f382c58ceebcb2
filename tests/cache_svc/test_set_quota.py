"""The quota of one rank changes while it runs: what it says, whom it tells, what it enforces (B3, B6, B7, B8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cache_svc.core.effects import BuildPool
from cache_svc.core.ledger import Owner
from cache_svc.core.orders import BindOrder, Opening, ReleaseOrder
from cache_svc.core.rank import RankCore
from stateroom.residency.answer import Bounded, Unbounded
from stateroom.residency.reasons import ErrorReason, Refused
from stateroom.residency.sizing import SizingTerms
from stateroom.residency.states import SlotState
from stateroom.v1 import cache_service_pb2 as pb
from tests.cache_svc.service import commit, reason_of, service

BOOT, LEADER, SLOT_BYTES = "boot-1", "leader-1", 100


def _committed(cap: int, slot_bytes: int = SLOT_BYTES) -> RankCore:
    """A rank with `cap` seats and one reserved row, and a stream open."""
    core = RankCore(BOOT, SizingTerms(quota_bytes=(cap + 1) * SLOT_BYTES, slot_bytes=slot_bytes))
    for keep in core.hear_term(1, LEADER):
        core.kept(keep)
    core.commit(1, LEADER, BOOT, Bounded(cap), 64, 1)
    core.built(BuildPool(cap + 1, (cap + 1) * slot_bytes), 1)
    core.open_stream(Opening(1, LEADER))
    return core


def _agree(core: RankCore, cap: int) -> None:
    assert core.commit(1, LEADER, BOOT, Bounded(cap), 64, 1) == ()


def _bind_all(core: RankCore, number: int, first: int, last: int) -> list[int]:
    """The slots of first .. last that are refused."""
    binds = tuple(BindOrder(n, Owner((1, number * 100 + n), f"q{n}", "s")) for n in range(first, last + 1))
    return [refusal.slot for refusal in core.apply(1, LEADER, BOOT, number, (), binds).refused]


@pytest.mark.parametrize(
    ("quota_bytes", "local", "sentence"),
    [
        (400, Bounded(3), "3 sequences fit"),
        (700, Bounded(6), "6 sequences fit"),
        (100, Bounded(0), "0 sequences fit: nothing is admitted until the quota is raised"),
        (
            10_000,
            Unbounded(),
            "99 sequences would fit and rows for 6 are built: restart all ranks of the group together to hold "
            "more than 6",
        ),
    ],
)
def test_b08_the_answer_follows_and_the_sentence_says_what_it_gives(
    quota_bytes: int, local: Bounded | Unbounded, sentence: str
) -> None:
    core = _committed(6)
    assert core.set_quota(quota_bytes, BOOT) == sentence
    assert core.local(64) == local
    assert core.agreement == Bounded(6)  # until the leader commits another (rule B3)
    assert core.ledger is not None
    assert core.ledger.rows == 7  # no memory moves


def test_b08_before_a_commit_any_quota_can_be_had() -> None:
    core = RankCore(BOOT, SizingTerms(quota_bytes=500, slot_bytes=SLOT_BYTES))
    assert core.set_quota(10_000, "") == "99 sequences fit"
    assert core.local(64) == Unbounded()


def test_b08_a_rank_without_states_says_that_its_quota_limits_nothing() -> None:
    core = _committed(4, slot_bytes=0)
    assert "limits nothing" in core.set_quota(1, "")
    assert core.local(64) == Unbounded()


@pytest.mark.parametrize(
    ("quota_bytes", "boot_id", "reason"),
    [(0, "", ErrorReason.INVALID_REQUEST), (400, "boot-0", ErrorReason.WRONG_BOOT_ID)],
)
def test_b08_a_refused_quota_changes_nothing(quota_bytes: int, boot_id: str, reason: ErrorReason) -> None:
    core = _committed(6)
    with pytest.raises(Refused) as refused:
        core.set_quota(quota_bytes, boot_id)
    assert refused.value.reason is reason
    assert core.terms.quota_bytes == 700


def test_b06_what_the_lowered_quota_does_not_cover_is_refused() -> None:
    core = _committed(6)
    core.set_quota(400, "")
    with pytest.raises(Refused) as refused:
        core.commit(1, LEADER, BOOT, Bounded(4), 64, 1)
    assert refused.value.reason is ErrorReason.QUOTA_EXCEEDED
    _agree(core, 3)
    assert _bind_all(core, 1, 1, 6) == [4, 5, 6]


@pytest.mark.parametrize("slot_bytes", [SLOT_BYTES, 0], ids=["a pool", "attention only"])
def test_b03_a_cap_that_falls_to_0_is_enforced_and_rises_again(slot_bytes: int) -> None:
    """It was never told to the ranks once: they went on with the cap before, and said so."""
    core = _committed(4, slot_bytes)
    assert _bind_all(core, 1, 1, 2) == []
    core.set_quota(1, "")  # less than the reserved row
    _agree(core, 0)
    assert core.agreement == Bounded(0)
    assert _bind_all(core, 2, 3, 4) == [3, 4]
    assert core.ledger is not None
    counts = core.ledger.counts()
    assert (counts[SlotState.BOUND], counts[SlotState.WITHHELD], counts[SlotState.FREE]) == (2, 2, 0)
    core.apply(1, LEADER, BOOT, 3, (ReleaseOrder(1, (1, 101)),), ())  # residents end as ever
    assert list(core.ledger.owners) == [2]
    assert core.ledger.check_integrity() == []
    core.set_quota(500, "")
    _agree(core, 4)
    assert _bind_all(core, 4, 3, 4) == []


async def test_b08_watchers_hear_of_it_at_once(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        await commit(running, 4)
        slot_bytes, boot_id = running.driver.settings.state.slot_bytes, running.driver.core.boot_id
        watch = running.stub.WatchResidency(pb.WatchResidencyRequest(asked=8, heartbeat_ms=60_000))
        await watch.read()
        request = pb.SetQuotaRequest(quota_bytes=3 * slot_bytes, rank_boot_id=boot_id)
        answer = await running.stub.SetQuota(request)
        assert (answer.affords.bounded.slots_count, answer.built_slots) == (2, 4)
        assert answer.previous_quota_bytes == 5 * slot_bytes
        told = (await asyncio.wait_for(watch.read(), 10)).residency
        assert (told.local.bounded.slots_count, told.terms.quota_bytes) == (2, 3 * slot_bytes)
        assert told.agreed.bounded.slots_count == 4
        assert told.spare_bytes == 0  # the rows that stand take more than the new quota
        watch.cancel()


async def test_b08_another_process_than_the_one_meant_is_left_alone(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        before = running.driver.core.terms
        for request, reason in (
            (pb.SetQuotaRequest(quota_bytes=2**30, rank_boot_id="boot-0"), ErrorReason.WRONG_BOOT_ID),
            (pb.SetQuotaRequest(), ErrorReason.INVALID_REQUEST),
        ):
            assert await reason_of(running.stub.SetQuota(request)) is reason
        assert running.driver.core.terms == before

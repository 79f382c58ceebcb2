"""The service over a real socket: query, commit, the ordered stream, paging, heartbeats."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from cache_svc import driver as driver_module
from cache_svc.pool import Pool
from cache_svc.watchers import Watchers
from stateroom.residency.reasons import ErrorReason
from stateroom.v1 import cache_service_pb2 as pb
from stateroom.v1 import types_pb2 as types
from tests.cache_svc.service import LEADER, Service, commit, reason_of, service


def _order(running: Service, number: int, **orders: object) -> pb.BindRequest:
    boot_id = running.driver.core.boot_id
    return pb.BindRequest(
        term=1, leader_boot_id=LEADER, rank_boot_id=boot_id, sequence_number=number, **orders
    )


def _bind(slot: int, counter: int) -> pb.BindOrder:
    generation = types.Generation(term=1, counter=counter)
    return pb.BindOrder(slot=slot, generation=generation, sequence_id=f"q{counter}", session_id="s")


def _release(slot: int, counter: int) -> pb.ReleaseOrder:
    return pb.ReleaseOrder(slot=slot, generation=types.Generation(term=1, counter=counter))


async def test_b01_the_answer_comes_with_every_term_of_the_sum(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        answer = await running.stub.ResidencyQuery(pb.ResidencyQueryRequest(asked=8))
        assert answer.local.bounded.slots_count == 4
        assert answer.agreed.WhichOneof("answer") == "pending"
        terms = answer.terms
        parts = terms.conv_bytes + terms.recurrent_bytes + terms.auxiliary_bytes + terms.padding_bytes
        assert terms.slot_bytes == parts
        assert terms.quota_bytes == 5 * terms.slot_bytes
        assert (terms.ssm_dtype.dtype, terms.ssm_dtype.source.split()[0]) == ("bfloat16", "flag")
        assert answer.slots.rows == 0
        fits = await running.stub.ResidencyQuery(pb.ResidencyQueryRequest(asked=4))
        assert fits.local.WhichOneof("answer") == "unbounded"
        reason = await reason_of(running.stub.ResidencyQuery(pb.ResidencyQueryRequest(asked=0)))
        assert reason is ErrorReason.INVALID_REQUEST


async def test_b04_nothing_is_allocated_before_the_commit(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        assert running.driver.pool is None
        reason = await reason_of(running.stub.AttachPool(pb.AttachPoolRequest()))
        assert reason is ErrorReason.NOT_COMMITTED
        answer = await commit(running, 4)
        assert (answer.rows, answer.pool_bytes) == (5, 5 * running.driver.settings.state.slot_bytes)
        assert await commit(running, 4) == answer  # repeated
        reason = await reason_of(running.stub.AttachPool(pb.AttachPoolRequest(layout_hash="other")))
        assert reason is ErrorReason.LAYOUT_DIFFERS


async def test_d01_the_ledger_comes_first_then_confirmations_and_freed_slots(short_dir: Path) -> None:
    async with service(short_dir, cap=2) as running:
        await commit(running, 2)
        call = running.stub.Bind()
        await call.write(pb.BindRequest(term=1, leader_boot_id=LEADER))
        first = await call.read()
        assert (first.ledger.rows, first.ledger.reserved_slots, len(first.ledger.entries)) == (3, 1, 0)
        await call.write(_order(running, 1, binds=[_bind(1, 1), _bind(3, 2)]))
        confirmed = await call.read()
        assert confirmed.applied_sequence_number == 1
        assert [(r.slot, r.reason) for r in confirmed.refused] == [(3, "SLOT_OUT_OF_RANGE")]
        assert running.driver.pool is not None
        running.driver.pool.row(1).fill_(0xFF)  # NaN in every dtype
        await call.write(_order(running, 2, releases=[_release(1, 1)]))
        assert (await call.read()).applied_sequence_number == 2
        pushed = await call.read()  # when the scrub is done; it too says what is applied
        assert (list(pushed.freed), pushed.applied_sequence_number) == ([1], 2)
        assert not running.driver.pool.row(1).any()
        await call.write(_order(running, 4))
        assert await reason_of(call.read()) is ErrorReason.SEQUENCE_GAP


async def test_d04_a_newer_stream_replaces_the_older_one(short_dir: Path) -> None:
    async with service(short_dir) as running:
        await commit(running, 4)
        older, newer = running.stub.Bind(), running.stub.Bind()
        for call in (older, newer):
            await call.write(pb.BindRequest(term=1, leader_boot_id=LEADER))
            assert (await call.read()).HasField("ledger")
        assert await reason_of(older.read()) is ErrorReason.STREAM_REPLACED
        await newer.write(_order(running, 1, binds=[_bind(1, 1)]))
        assert (await newer.read()).applied_sequence_number == 1


async def test_s08_an_attention_only_rank_runs_every_step_of_the_protocol(short_dir: Path) -> None:
    async with service(short_dir, attention_only=True) as running:
        answer = await running.stub.ResidencyQuery(pb.ResidencyQueryRequest(asked=8))
        assert answer.local.WhichOneof("answer") == "unbounded"
        committed = await commit(running, 2)
        assert (committed.rows, committed.pool_bytes) == (3, 0)
        assert await reason_of(running.stub.AttachPool(pb.AttachPoolRequest())) is ErrorReason.NO_POOL
        call = running.stub.Bind()
        await call.write(pb.BindRequest(term=1, leader_boot_id=LEADER))
        await call.read()
        await call.write(_order(running, 1, binds=[_bind(1, 1), _bind(2, 2), _bind(3, 3)]))
        assert [r.slot for r in (await call.read()).refused] == [3]  # rule B3: beyond the shared cap
        await call.write(_order(running, 2, releases=[_release(1, 1)]))
        assert list((await call.read()).freed) == [1]
        again = await running.stub.ResidencyQuery(pb.ResidencyQueryRequest(asked=8))
        assert (again.agreed.bounded.slots_count, again.local.WhichOneof("answer")) == (2, "unbounded")


async def test_d01_the_highest_term_outlives_the_process(short_dir: Path) -> None:
    async with service(short_dir) as running:
        await commit(running, 4)
    async with service(short_dir) as running:
        answer = await running.stub.ResidencyQuery(pb.ResidencyQueryRequest(asked=8))
        assert answer.highest_term == 1
        request = pb.CommitResidencyRequest(
            term=1,
            leader_boot_id="another",
            rank_boot_id=answer.boot_id,
            agreed=types.Residency(bounded=types.Bounded(slots_count=2)),
            asked=8,
            reserved_slots=1,
        )
        assert await reason_of(running.stub.CommitResidency(request)) is ErrorReason.TERM_TAKEN


async def test_g12_the_ledger_is_listed_in_pages(short_dir: Path) -> None:
    async with service(short_dir, cap=6) as running:
        await commit(running, 6)
        slots, token = [], ""
        while True:
            page = await running.stub.ListSlots(pb.ListSlotsRequest(page_size=3, page_token=token))
            slots += [entry.slot for entry in page.slots]
            token = page.next_page_token
            if not token:
                break
        assert slots == list(range(7))
        bad = pb.ListSlotsRequest(page_token="x")
        assert await reason_of(running.stub.ListSlots(bad)) is ErrorReason.INVALID_REQUEST


async def test_b06_both_numbers_are_named_and_nothing_is_built(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        slot_bytes = running.driver.settings.state.slot_bytes
        with pytest.raises(
            grpc.aio.AioRpcError, match=rf"need {6 * slot_bytes} .* quota is {5 * slot_bytes} "
        ):
            await commit(running, 5)
        assert running.driver.pool is None


async def test_p05_a_build_outlives_the_call_that_began_it(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken call once left a pool that belonged to nobody, and the next commit built a second one."""
    built: list[Pool] = []
    go = threading.Event()

    def slowly(*arguments: Any) -> Pool:
        go.wait(10)
        built.append(Pool(*arguments))
        return built[-1]

    monkeypatch.setattr(driver_module, "Pool", slowly)
    async with service(short_dir, cap=4) as running:
        with pytest.raises(grpc.aio.AioRpcError, match="Deadline"):
            await commit(running, 4, seconds_max=0.2)
        answer = await running.stub.ResidencyQuery(pb.ResidencyQueryRequest(asked=8))
        assert answer.agreed.WhichOneof("answer") == "pending"  # nothing stands yet
        again = asyncio.ensure_future(commit(running, 4))
        go.set()
        assert (await again).rows == 5
        assert built == [running.driver.pool]


async def test_x12_a_change_between_a_word_and_the_wait_is_not_missed() -> None:
    watchers = Watchers()
    version = watchers.version
    await watchers.tell()
    await asyncio.wait_for(watchers.wait(version, seconds_max=60), 5)


async def test_d08_watchers_and_the_leader_are_told_of_a_stop(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        await commit(running, 4)
        watch = running.stub.WatchResidency(pb.WatchResidencyRequest(asked=8, heartbeat_ms=60_000))
        await watch.read()
        leader = running.stub.Bind()
        await leader.write(pb.BindRequest(term=1, leader_boot_id=LEADER))
        await leader.read()
        ends = asyncio.gather(reason_of(watch.read()), reason_of(leader.read()))
        await running.driver.close()
        assert await ends == [ErrorReason.DRAINING, ErrorReason.DRAINING]
        assert await reason_of(commit(running, 4)) is ErrorReason.DRAINING


async def test_x12_the_watch_beats_and_tells_a_change_at_once(short_dir: Path) -> None:
    async with service(short_dir, cap=4) as running:
        call = running.stub.WatchResidency(pb.WatchResidencyRequest(asked=8, heartbeat_ms=50))
        first, second = await call.read(), await call.read()
        assert first.residency.boot_id == second.residency.boot_id
        slow = running.stub.WatchResidency(pb.WatchResidencyRequest(asked=8, heartbeat_ms=60_000))
        await slow.read()
        await commit(running, 4)
        change = await asyncio.wait_for(slow.read(), 10)
        assert change.residency.agreed.bounded.slots_count == 4
        call.cancel()
        slow.cancel()

"""The scheduler is killed while sequences run: nothing is lost, nothing counted twice (rules D3, D5, D7)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from stateroom.client import Session, SyncSession
from stateroom.errors import StateroomError
from stateroom.residency.reasons import ErrorReason
from stateroom_ops.local_group import SCHEDULER
from stateroom_ops.operator_client import list_slots
from tests.services.groups import fill, group, small

pytestmark = [pytest.mark.processes, pytest.mark.timeout(100)]


async def _until_back(session: Session) -> int:
    while True:
        decisions = await session.step()
        if not decisions.away:
            return decisions.step
        await asyncio.wait_for(session.reconnected(), 30)


async def test_d03_residents_go_on_after_the_scheduler_was_killed(short_dir: Path) -> None:
    settings = small(short_dir, cap=4)
    async with group(settings) as (running, session, operator):
        last = await fill(session, [f"q{n}" for n in range(7)])
        assert sorted(session.held) == ["q0", "q1", "q2", "q3"]
        slots = {name: held.handles[0].slot for name, held in session.held.items()}
        running.kill()
        await running.next_death()
        away = await session.step(completed_step=last)
        assert away.away  # rule D7: go on as you are
        session.finish("q1")
        session.submit("late", prompt_tokens=16, max_output_tokens=8)
        await running.restart()
        step = await _until_back(session)
        await session.settle()
        decisions = await session.step(completed_step=step)
        assert not decisions.recompute  # nobody lost its state
        assert {name: session.held[name].handles[0].slot for name in ("q0", "q2", "q3")} == {
            name: slots[name] for name in ("q0", "q2", "q3")
        }
        while len(session.held) < 4:  # the slot that was given back meanwhile is granted again
            await session.wait(1.0)
            decisions = await session.step(completed_step=decisions.step)
        assert session.waiting == {"q5", "q6", "late"}
        described = await operator.describe()
        assert (described.residents, described.waiting, described.term) == (4, 3, 2)
        for address in settings.rank_addresses:
            listed = await list_slots(address)
            assert (listed.counts.bound, list(listed.integrity_errors)) == (4, [])


@pytest.mark.parametrize("kind", ["asyncio", "thread"])
async def test_a11_a_late_decision_applies_to_the_next_step(short_dir: Path, kind: str) -> None:
    """The scheduler is stopped for a moment: the step goes on without new grants, nothing is lost."""
    settings = small(short_dir, cap=2)
    async with group(settings) as (running, _, _operator):
        if kind == "asyncio":
            session = await Session.connect(settings.scheduler_address, executor="late", timeout_s=20)
        else:
            session = await asyncio.to_thread(
                SyncSession.connect, settings.scheduler_address, executor="late", timeout_s=20
            )

        async def call(method: str, **arguments: object) -> Any:
            if kind == "asyncio":
                return await getattr(session, method)(**arguments)
            return await asyncio.to_thread(getattr(session, method), **arguments)

        session.submit("a", 16, 4)
        await call("step", deadline_ms=5_000)
        scheduler = running._children[SCHEDULER].pid
        os.kill(scheduler, signal.SIGSTOP)
        try:
            late = await call("step", deadline_ms=50)
        finally:
            os.kill(scheduler, signal.SIGCONT)
        assert (late.late, late.away, late.chunks) == (True, False, ())
        decisions = await call("step", deadline_ms=5_000)
        assert not decisions.late
        while not session.held:
            await call("step", deadline_ms=5_000)
        assert list(session.held) == ["a"]
        closing = session.close()
        if closing is not None:
            await closing


async def test_d04_a_second_stream_of_a_session_ends_the_first(short_dir: Path) -> None:
    async with group(small(short_dir)) as (_, session, _operator):
        await fill(session, ["a"])
        second = await Session.connect(session.address, executor="twin", session_id=session.info.session_id)
        await second.step()
        with pytest.raises(StateroomError) as replaced:
            await session.step()
        assert replaced.value.reason is ErrorReason.STREAM_REPLACED
        await second.close()


async def test_x08_a_scheduler_of_a_lower_term_is_refused_and_changes_nothing(short_dir: Path) -> None:
    """Another scheduler takes the ranks with a higher term: the first one stops leading (rules D1, D4)."""
    import sys

    settings = small(short_dir)
    async with group(settings) as (running, session, _):
        await fill(session, ["a", "b"])
        rival = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scheduler_svc", "--ranks", ",".join(settings.rank_addresses)),
            *("--max-batch-size", "16", "--stages", "2", "--listen", f"unix:{short_dir}/rival.sock"),
            *("--state-dir", str(short_dir / "rival")),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            rank, sentence = await running.next_death()
            assert rank is None
            assert "follows term 2" in running.log_of().read_text(), sentence
            slots = await list_slots(settings.rank_addresses[0])
            assert slots.counts.bound == 2
        finally:
            rival.terminate()
            await rival.wait()
